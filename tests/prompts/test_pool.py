from __future__ import annotations

import itertools

import numpy as np
import pytest

from evoforge.core import MetaPrompt, Strategy
from evoforge.errors import NotFoundError, UsageError
from evoforge.lowering.schedule import CHOICES
from evoforge.paths import data_dir
from evoforge.prompts import (
    Credit,
    Note,
    PromptPool,
    format_meta_prompt,
    load_meta_prompts,
    parse_meta_prompt,
    prompt_distance,
)


def prompt(name: str, version: int = 1, parents: tuple[str, ...] = (), weight: float = 1.0) -> MetaPrompt:
    return MetaPrompt(name, version, "cpp", Strategy(operators={"aim": weight}), {}, parents)


def test_versions_are_kept_and_found_by_ref() -> None:
    pool = PromptPool([prompt("a"), prompt("b")])
    pool.add(prompt("a", 2, ("a@1", "b@1")))
    pool.add(prompt("a"))
    assert [p.ref for p in pool] == ["a@1", "b@1", "a@2"] and len(pool) == 3
    assert pool["a@2"].parents == ("a@1", "b@1") and "a@2" in pool and "a@3" not in pool
    assert pool.next_version("a") == 3 and pool.next_version("new") == 1
    with pytest.raises(NotFoundError, match=r"a@9.*a@1, b@1, a@2"):
        pool["a@9"]
    with pytest.raises(UsageError, match="raise the version"):
        pool.add(prompt("a", weight=2.0))
    with pytest.raises(UsageError, match="parent 'x@1'"):
        pool.add(prompt("c", parents=("x@1",)))


def test_ancestors_come_nearest_first_and_once() -> None:
    pool = PromptPool([prompt("a"), prompt("b"), prompt("a", 2, ("a@1",)), prompt("c", 1, ("a@2", "b@1", "a@1"))])
    assert pool.ancestors("c@1") == ("a@2", "b@1", "a@1")
    assert pool.ancestors("a@1") == () == pool.ancestors("stranger@1")


def test_retired_versions_are_remembered_but_not_active() -> None:
    pool = PromptPool([prompt("a"), prompt("b")])
    pool.retire("b@1")
    assert [p.ref for p in pool.active()] == ["a@1"] and "b@1" in pool
    with pytest.raises(UsageError, match="only active"):
        pool.retire("a@1")
    with pytest.raises(NotFoundError):
        pool.retire("z@1")


def test_credit_adds_up_whatever_the_order() -> None:
    rows = [(0.1, 1.5, True), (0.2, 0.25, True), (0.0, 3.0, False), (0.7, 0.1, True)]
    totals = set()
    for order in itertools.permutations(rows):
        pool = PromptPool([prompt("a"), prompt("b")])
        for gain, cost_s, valid in order:
            pool.credit("a@1", gain=gain, cost_s=cost_s, valid=valid)
        pool.credit(None, gain=9.0, cost_s=9.0, valid=True)
        totals.add(pool.credits()["a@1"])
        assert pool.credits()["b@1"] == Credit()
    assert totals == {Credit(uses=4, valid=3, gain=1.0, cost_s=4.85)}


def test_notes_keep_the_best_and_the_latest_failures_whatever_the_order() -> None:
    notes = [(Note(t, "improve", "CORRECT" if t % 2 else "WRONG", gain=float(t % 7)), t % 2 == 1) for t in range(1, 41)]
    seen = set()
    for order in (notes, notes[::-1], sorted(notes, key=lambda row: row[0].gain)):
        pool = PromptPool([prompt("a")])
        for note, valid in order:
            pool.credit("a@1", gain=note.gain, cost_s=1.0, valid=valid, note=note)
        seen.add(pool.evidence("a@1"))
    (evidence,) = seen
    assert [note.ticket for note in evidence.failed] == list(range(40, 9, -2))
    assert [note.gain for note in evidence.best][:3] == [6.0, 6.0, 5.0] and evidence.credit.uses == 40
    with pytest.raises(NotFoundError):
        pool.evidence("z@1")


def test_worth_is_gain_per_cost_shrunk_to_what_was_expected() -> None:
    pool = PromptPool([prompt("a"), prompt("b"), prompt("c")])
    assert set(pool.worth().values()) == {0.0}
    for _ in range(50):
        pool.credit("a@1", gain=2.0, cost_s=10.0, valid=True)
        pool.credit("b@1", gain=0.5, cost_s=10.0, valid=True)
    pool.credit("c@1", gain=2.5, cost_s=10.0, valid=True)
    worth = pool.worth()
    assert worth["a@1"] > worth["c@1"] > worth["b@1"], "one lucky outcome does not enthrone"
    pool.add(prompt("a", 2, ("a@1",)))
    pool.add(prompt("b", 2, ("b@1",)))
    again = pool.worth()
    assert again["a@2"] == pytest.approx(again["a@1"]) and again["b@2"] == pytest.approx(again["b@1"])
    pool.credit("a@2", gain=0.0, cost_s=10.0, valid=False, cost_usd=0.5)
    assert pool.worth()["a@2"] < again["a@2"] / 3, "dollars count"
    best = pool.better("b@1")
    assert best is not None and best.ref == "a@1" and pool.better("a@1") is None


def test_a_late_prompt_is_not_to_blame_for_an_archive_that_fills_up() -> None:
    pool = PromptPool([prompt("early"), prompt("late"), prompt("good")])
    for ticket in range(400):
        ref = "early@1" if ticket < 100 else "good@1" if ticket % 2 else "late@1"
        gain = 4.0 if ticket < 100 else 1.0 if ref == "good@1" else 0.2
        pool.credit(ref, gain=gain, cost_s=1.0, valid=True, note=Note(ticket, "aim", "CORRECT", gain))
    worth = pool.worth()
    assert worth["good@1"] > worth["early@1"] > worth["late@1"]


def test_a_child_is_known_by_its_ancestors_notes_too() -> None:
    pool = PromptPool([prompt("a"), prompt("a", 2, ("a@1",)), prompt("b")])
    pool.credit("a@1", gain=2.0, cost_s=1.0, valid=True, note=Note(1, "aim", "CORRECT", 2.0, "old"))
    pool.credit("b@1", gain=9.0, cost_s=1.0, valid=True, note=Note(2, "aim", "CORRECT", 9.0, "other"))
    pool.credit("a@2", gain=0.0, cost_s=1.0, valid=False, note=Note(3, "aim", "WRONG", 0.0, "new"))
    evidence = pool.evidence("a@2")
    assert [note.hypothesis for note in evidence.best] == ["old"] and evidence.credit.uses == 1
    assert [note.hypothesis for note in evidence.failed] == ["new"]
    for ticket in range(4, 40):
        note = Note(ticket, "aim", "CORRECT", 1.0, "own")
        pool.credit("a@2", gain=1.0, cost_s=1.0, valid=True, note=note)
    assert {note.hypothesis for note in pool.evidence("a@2").best} == {"own"}, "enough of its own"


def test_what_others_found_stands_apart_and_is_bounded() -> None:
    pool = PromptPool([prompt("a"), prompt("b"), prompt("a", 2, ("a@1",))])
    pool.credit("a@1", gain=1, cost_s=1, valid=True, note=Note(0, "improve", "CORRECT", 1.0, "parents"))
    for ticket in range(1, 100):
        valid = bool(ticket % 2)
        note = Note(ticket, "improve", "CORRECT" if valid else "WRONG", float(ticket * valid), "others")
        pool.credit("b@1", gain=float(ticket * valid), cost_s=1, valid=valid, note=note)
    found = pool.evidence("a@2")
    assert {note.hypothesis for note in (*found.best, *found.failed)} == {"parents"}
    assert {note.hypothesis for note in (*found.best_elsewhere, *found.failed_elsewhere)} == {"others"}
    assert found.best_elsewhere[0].gain == 99.0
    assert found.failed_elsewhere[0].ticket == 98
    assert max(len(found.best_elsewhere), len(found.failed_elsewhere)) <= 32


@pytest.mark.parametrize("language", ["cpp", "triton"])
def test_a_pool_is_named_by_default_or_by_one_seed(language: str) -> None:
    everyone = PromptPool.named("default", language)
    first = next(iter(everyone))
    assert [one.ref for one in PromptPool.named(first.name, language)] == [first.ref] and len(everyone) > 1
    with pytest.raises(UsageError, match=rf"default, {first.name}.*got 'nobody'"):
        PromptPool.named("nobody", language)


def test_the_worthier_breed_more_often_and_never_with_themselves() -> None:
    pool = PromptPool([prompt("a"), prompt("b"), prompt("c")])
    for _ in range(20):
        pool.credit("b@1", gain=2.0, cost_s=10.0, valid=True)
        pool.credit("a@1", gain=0.1, cost_s=10.0, valid=True)
    rng = np.random.default_rng(0)
    drawn = [pool.parents(rng) for _ in range(300)]
    count = {name: sum(first.name == name for first, _ in drawn) for name in "abc"}
    assert count["b"] > count["c"] > count["a"] > 10
    assert all(partner is not None and partner.ref != first.ref for first, partner in drawn)
    assert PromptPool([prompt("a")]).parents(rng)[1] is None


def test_shrinking_keeps_lineages_and_the_worthy() -> None:
    pool = PromptPool([prompt("a", weight=0.1), prompt("b", weight=10.0)])
    for version in range(2, 7):
        pool.add(prompt("a", version, (f"a@{version - 1}",), weight=0.05 * 2**version))
    for ref in [one.ref for one in pool]:
        for _ in range(40):
            pool.credit(ref, gain=0.0 if ref == "b@1" else float(pool[ref].version), cost_s=1.0, valid=True)
    assert pool.shrink(4) == ["a@1", "a@2", "a@3"] and pool.shrink(4) == []
    assert [one.ref for one in pool.active()] == ["b@1", "a@4", "a@5", "a@6"], "b is the last of its lineage"
    assert pool.shrink(2) == ["a@4", "b@1"], "no lineage has three any more"
    with pytest.raises(UsageError, match=r"meta_prompts\.active"):
        pool.shrink(0)


def test_of_twins_the_less_worthy_goes_first_and_the_untried_wait() -> None:
    pool = PromptPool(
        [prompt("a", weight=1.0), prompt("b", weight=1.01), prompt("c", weight=9.0), prompt("d", weight=0.1)]
    )
    for ref, gain in (("a@1", 3.0), ("b@1", 2.0), ("c@1", 0.5)):
        for _ in range(5):
            pool.credit(ref, gain=gain, cost_s=1.0, valid=True)
    assert pool.shrink(3) == ["b@1"], "c earns less than b, but says something else"
    assert pool.shrink(2) == ["c@1"], "d was never tried"


LANGUAGES = pytest.mark.parametrize("language", ["cpp", "triton", "cuda"])


@LANGUAGES
def test_the_seeds_that_ship_are_distinct_and_read_back_the_same(language: str) -> None:
    pool = PromptPool.default(language)
    assert len(pool) >= 6
    assert len({repr(p.strategy) for p in pool}) == len(pool)
    assert all(parse_meta_prompt(format_meta_prompt(p)) == p for p in pool)
    assert [p.ref for p in pool] == [p.ref for p in load_meta_prompts(data_dir("meta_prompts"), language)]
    assert all(prompt_distance(a, b) > 0.2 for a, b in itertools.combinations(pool, 2))
    with pytest.raises(UsageError, match="'brainfuck'"):
        PromptPool.default("brainfuck")


@LANGUAGES
def test_seeds_hold_weights_not_schedules(language: str) -> None:
    for seed in PromptPool.default(language):
        weights = [*seed.strategy.operators.values(), *seed.strategy.stress.values(), *seed.strategy.priors.values()]
        # No weight forces or forbids a decision: every schedule stays possible under every seed.
        assert weights and all(0.1 <= weight <= 5 for weight in weights)
        for text in seed.sections.values():
            assert "```" not in text
            assert not any(word in text.lower() for word in ("softmax", "rmsnorm", "rms_norm", "4096", "2048"))


@LANGUAGES
def test_seeds_name_decisions_that_schedules_have(language: str) -> None:
    for seed in PromptPool.default(language):
        for key in seed.strategy.priors:
            gene, _, value = key.partition("=")
            assert gene.isupper() or value in CHOICES[gene], (seed.ref, key)
        for key in seed.strategy.stress:
            assert key.partition("=")[0] in ("tiling", "memory", "fusion") and key[-1] in "0123", (seed.ref, key)
