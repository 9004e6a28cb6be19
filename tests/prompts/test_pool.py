from __future__ import annotations

import itertools

import pytest

from evoforge.core import MetaPrompt, Strategy
from evoforge.errors import NotFoundError, UsageError
from evoforge.lowering.schedule import CHOICES
from evoforge.paths import data_dir
from evoforge.prompts import Credit, PromptPool, format_meta_prompt, load_meta_prompts, parse_meta_prompt


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


def test_retired_versions_are_remembered_but_not_picked() -> None:
    pool = PromptPool([prompt("a"), prompt("b")])
    assert pool.pick(lambda prompts: len(prompts) - 1).ref == "b@1"
    pool.retire("b@1")
    assert [p.ref for p in pool.active()] == ["a@1"] and "b@1" in pool
    assert pool.pick(lambda prompts: len(prompts) - 1).ref == "a@1"
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


def test_the_seeds_that_ship_are_distinct_and_read_back_the_same() -> None:
    pool = PromptPool.default("cpp")
    assert len(pool) >= 6
    assert len({repr(p.strategy) for p in pool}) == len(pool)
    assert all(parse_meta_prompt(format_meta_prompt(p)) == p for p in pool)
    assert [p.ref for p in pool] == [p.ref for p in load_meta_prompts(data_dir("meta_prompts"), "cpp")]
    with pytest.raises(UsageError, match="'brainfuck'"):
        PromptPool.default("brainfuck")


def test_seeds_hold_weights_not_schedules() -> None:
    for seed in PromptPool.default("cpp"):
        weights = [*seed.strategy.operators.values(), *seed.strategy.stress.values(), *seed.strategy.priors.values()]
        # No weight forces or forbids a decision: every schedule stays possible under every seed.
        assert weights and all(0.1 <= weight <= 5 for weight in weights)
        for text in seed.sections.values():
            assert "```" not in text
            assert not any(word in text.lower() for word in ("softmax", "rmsnorm", "rms_norm", "4096", "2048"))


def test_seeds_name_decisions_that_schedules_have() -> None:
    for seed in PromptPool.default("cpp"):
        for key in seed.strategy.priors:
            gene, _, value = key.partition("=")
            assert gene.isupper() or value in CHOICES[gene], (seed.ref, key)
        for key in seed.strategy.stress:
            assert key.partition("=")[0] in ("tiling", "memory", "fusion") and key[-1] in "0123", (seed.ref, key)
