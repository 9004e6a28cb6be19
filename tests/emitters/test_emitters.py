"""What every generator emitter owes the loop, then what each does by itself."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from evoforge.core import Candidate, MetaPrompt, Strategy
from evoforge.emitters import (
    AimEmitter,
    CrossEmitter,
    Emitter,
    MutateEmitter,
    Proposal,
    SampleEmitter,
    Scores,
    SearchView,
    Selection,
    generator_emitters,
)

NAMES = ["sample", "mutate", "cross", "aim"]
FILLED = {(0, 0, 0): -1.0, (1, 1, 1): 0.5, (2, 3, 2): 0.9}


def each(score: Callable[[Mapping[str, Any]], float]) -> Scores:
    """The scores of drafts, one by one."""
    return lambda drafts: np.array([score(draft) for draft in drafts])


def emitter(name: str) -> Emitter:
    return next(e for e in generator_emitters() if e.name == name)


def test_the_generator_family_has_four_members_in_order() -> None:
    assert [e.name for e in generator_emitters()] == NAMES


@pytest.mark.parametrize("name", NAMES)
class TestEveryGenerator:
    def test_proposes_a_new_candidate_with_its_whole_provenance(self, name: str, view_of: Any, prompt: Any) -> None:
        view = view_of(FILLED)
        proposal = emitter(name).ask(view, prompt, np.random.default_rng(3))
        assert isinstance(proposal, Proposal)
        candidate = proposal.candidate
        assert (candidate.language, candidate.licence, candidate.model) == ("cpp", "Apache-2.0", None)
        assert candidate.operator == proposal.operator == proposal.emitter == name
        assert candidate.meta_prompt == proposal.meta_prompt == "plain@1"
        assert candidate.genome is not None
        assert candidate.source == view.space.render(candidate.genome)
        assert candidate.parents == tuple(view.elites[cell][1].id for cell in proposal.parent_cells)
        assert proposal.params_hint == ({"TILE": 32} if proposal.parent_cells else {})

    def test_the_same_generator_state_gives_the_same_proposals(self, name: str, view_of: Any, prompt: Any) -> None:
        def stream() -> list[Any]:
            one, rng = emitter(name), np.random.default_rng(11)
            return [one.ask(view_of(FILLED), prompt, rng) for _ in range(10)]

        assert stream() == stream()

    def test_with_a_score_the_best_of_many_drafts_is_proposed(self, name: str, view_of: Any, prompt: Any) -> None:
        view = dataclasses.replace(view_of(FILLED), scores=each(lambda genome: float(genome["salt"])))
        proposals = [emitter(name).ask(view, prompt, np.random.default_rng(seed)) for seed in range(12)]
        salts = [proposal.candidate.genome["salt"] for proposal in proposals]  # type: ignore[union-attr, index]
        assert np.mean(salts) > 33  # 25 would be chance

    def test_it_never_repeats_what_was_tried_and_gives_up_when_all_was(
        self, name: str, view_of: Any, prompt: Any, space: Any
    ) -> None:
        space.salts = 1
        tried: set[str] = {candidate.id for _, candidate in view_of(FILLED).elites.values()}
        one, rng, misses = emitter(name), np.random.default_rng(5), 0
        for _ in range(400):
            proposal = one.ask(view_of(FILLED, tried=tried), prompt, rng)
            if proposal is None:
                misses += 1
                continue
            assert proposal.candidate.id not in tried
            tried.add(proposal.candidate.id)
        assert misses > 0

    def test_answers_may_be_late_doubled_and_missing(
        self, name: str, view_of: Any, prompt: Any, outcome_of: Any
    ) -> None:
        told = [
            outcome_of(t, emitter=name, parents=((0, 0, 0),), cell=(t % 4, 1, 1), gain=0.1 * t) for t in range(0, 40, 2)
        ]

        def after(order: list[Any]) -> list[Any]:
            one, rng = emitter(name), np.random.default_rng(2)
            for outcome in order:
                one.tell(outcome)
            return [one.ask(view_of(FILLED), prompt, rng) for _ in range(8)]

        assert after(told) == after(told[::-1]) == after(told + told[:5])

    def test_an_imported_elite_without_genome_is_no_parent(
        self, name: str, view_of: Any, prompt: Any, elite_at: Any
    ) -> None:
        view = dataclasses.replace(view_of({}), elites={(0, 0, 0): elite_at((0, 0, 0), 3.0, genome=False)})
        one, rng = emitter(name), np.random.default_rng(0)
        assert one.ready(view) == (name in ("sample", "aim"))
        for _ in range(10):
            proposal = one.ask(view, prompt, rng)
            assert proposal is None if not one.ready(view) else proposal is not None and proposal.parent_cells == ()


def test_before_any_elite_only_sample_and_aim_are_ready(view_of: Any, prompt: Any) -> None:
    empty = view_of({})
    assert [e.name for e in generator_emitters() if e.ready(empty)] == ["sample", "aim"]
    one = view_of({(1, 1, 1): 0.0})
    assert [e.name for e in generator_emitters() if e.ready(one)] == ["sample", "mutate", "aim"]
    assert all(e.ask(empty, prompt, np.random.default_rng(0)) is None for e in generator_emitters()[1:3])


def test_sample_starts_with_the_plain_default(view_of: Any, prompt: Any, space: Any) -> None:
    rng = np.random.default_rng(0)
    first = SampleEmitter().ask(view_of({}), prompt, rng)
    assert first is not None and first.candidate.genome == space.default()
    second = SampleEmitter().ask(view_of({}, tried={first.candidate.id}), prompt, rng)
    assert second is not None and second.candidate.id != first.candidate.id


def test_mutate_stays_near_its_parent(view_of: Any, prompt: Any, space: Any) -> None:
    rng, one = np.random.default_rng(0), MutateEmitter(Selection())
    for _ in range(30):
        proposal = one.ask(view_of(FILLED), prompt, rng)
        assert proposal is not None and len(proposal.parent_cells) == 1
        cell = space.implied_cell(proposal.candidate.genome)
        assert sum(abs(a - b) for a, b in zip(cell, proposal.parent_cells[0], strict=True)) <= 1


def test_with_a_score_mutations_take_over_what_has_paid(view_of: Any, prompt: Any) -> None:
    def score(genome: Any) -> float:
        return float((genome["memory"] == 3) + (genome["fusion"] == 2))

    rng, one = np.random.default_rng(0), MutateEmitter(Selection())
    scored = dataclasses.replace(view_of(FILLED), scores=each(score))
    plain, climbed = ([one.ask(view, prompt, rng) for _ in range(20)] for view in (view_of(FILLED), scored))
    assert sum(score(proposal.candidate.genome) == 2 for proposal in plain if proposal) <= 10
    assert sum(score(proposal.candidate.genome) == 2 for proposal in climbed if proposal) >= 18


def test_with_scores_a_child_begins_at_the_best_of_its_parents_values_those_that_won_elsewhere_and_drawn_ones(
    view_of: Any, prompt: Any, space: Any
) -> None:
    def begins_at(tile: int, settings: list[dict[str, int]]) -> Any:
        view = dataclasses.replace(
            view_of(FILLED), scores=each(lambda decisions: float(decisions.get("TILE") == tile)), settings=settings
        )
        proposal = MutateEmitter(Selection()).ask(view, prompt, np.random.default_rng(4))
        assert proposal is not None
        return proposal.params_hint

    assert begins_at(8, [{"TILE": 16}, {"TILE": 8, "OF_ANOTHER": 3}]) == {"TILE": 8}
    assert begins_at(16, []) == {"TILE": 16}, "values are drawn, too"
    assert begins_at(99, [{"TILE": 16}]) == {"TILE": 32}, "of equals the parent's come first"
    aimed = dataclasses.replace(
        view_of(FILLED), scores=each(lambda decisions: float(decisions.get("TILE") == 8)), settings=[{"TILE": 8}]
    )
    proposal = AimEmitter(Selection()).ask(aimed, prompt, np.random.default_rng(4))
    assert proposal is not None and proposal.params_hint["TILE"] != 8, "other values might imply another cell"


def test_cross_takes_two_elites_of_different_cells_and_nothing_else(view_of: Any, prompt: Any) -> None:
    rng, one, view = np.random.default_rng(0), CrossEmitter(Selection()), view_of(FILLED)
    for _ in range(30):
        proposal = one.ask(view, prompt, rng)
        assert proposal is not None
        first, second = proposal.parent_cells
        assert first != second
        genes = [view.elites[cell][1].genome for cell in (first, second)]
        assert all(value in (genes[0][key], genes[1][key]) for key, value in proposal.candidate.genome.items())


def test_aim_lands_where_it_says_from_the_nearest_elite_or_from_nothing(view_of: Any, prompt: Any, space: Any) -> None:
    rng, one = np.random.default_rng(0), AimEmitter(Selection())
    near = Counter()
    for _ in range(60):
        proposal = one.ask(view_of(FILLED), prompt, rng)
        assert proposal is not None
        assert space.implied_cell(proposal.candidate.genome) == proposal.target_cell
        near[proposal.parent_cells] += 1
        if proposal.parent_cells:
            steps = {c: sum(abs(a - b) for a, b in zip(c, proposal.target_cell, strict=True)) for c in FILLED}
            assert steps[proposal.parent_cells[0]] == min(steps.values())
    assert near[()] > 0 and len(near) == 4


def test_no_emitter_proposes_what_is_hopeless_and_aim_turns_to_other_cells(view_of: Any, prompt: Any) -> None:
    view = view_of(
        {(1, 1, 1): 0.5, (1, 2, 1): 0.4}, scores=each(lambda genome: 0.0), hopeless=lambda genome: genome["memory"] == 0
    )
    for emitter in generator_emitters():
        proposals = [emitter.ask(view, prompt, np.random.default_rng(seed)) for seed in range(20)]
        found = [proposal for proposal in proposals if proposal is not None]
        assert len(found) >= 19
        assert all(proposal.candidate.genome["memory"] != 0 for proposal in found)


def test_aim_tries_another_target_when_the_space_cannot_reach_one(view_of: Any, prompt: Any) -> None:
    cells = frozenset({(0, 0, 3), (1, 0, 3), (2, 0, 3), (0, 0, 2)})
    proposal = AimEmitter(Selection()).ask(view_of({}, reachable=cells), prompt, np.random.default_rng(0))
    assert proposal is not None and proposal.target_cell == (0, 0, 2)
    hopeless = view_of({}, reachable=frozenset({(0, 0, 3)}))
    assert AimEmitter(Selection()).ask(hopeless, prompt, np.random.default_rng(0)) is None


def test_aim_gives_up_where_three_cells_take_only_what_is_hopeless(
    view_of: Any, space: Any, prompt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    original = space.aim
    monkeypatch.setattr(space, "aim", lambda *words: asked.append(words) or original(*words))
    view = view_of({(1, 1, 1): 0.5}, scores=each(lambda genome: 0.0), hopeless=lambda genome: True)
    assert AimEmitter(Selection()).ask(view, prompt, np.random.default_rng(0)) is None
    assert len(asked) == 3


def test_the_strategy_reaches_the_space(view_of: Any, space: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Strategy] = []
    for name in ("sample", "mutate", "cross", "aim"):
        original = getattr(space, name)

        def spy(*args: Any, original: Any = original) -> Any:
            asked.extend(arg for arg in args if isinstance(arg, Strategy))
            return original(*args)

        monkeypatch.setattr(space, name, spy, raising=False)
    strategy = Strategy(priors={"store=stream": 3.0})
    prompt = MetaPrompt("p", 1, "cpp", strategy, {})
    view: SearchView = view_of(FILLED)
    for one in generator_emitters():
        one.ask(view, prompt, np.random.default_rng(0))
    assert len(asked) >= 4 and all(used is strategy for used in asked)


class Remembered:
    """What a campaign knows of some candidates and of their trials."""

    def __init__(self, candidates: list[Candidate], trials: list[dict[str, int]]) -> None:
        self.candidates, self.trials = {one.id: one for one in candidates}, trials

    def candidate(self, candidate: str) -> Candidate | None:
        return self.candidates.get(candidate)

    def known(self, candidate: str, params: Mapping[str, int]) -> bool:
        return dict(params) in self.trials


def _again(view_of: Any, prompt: MetaPrompt, trials: list[dict[str, int]]) -> SearchView:
    """All that mutations of one elite can be is known, and tried at `trials`."""
    view = view_of({(1, 1, 1): 0.5}, scores=each(lambda decisions: float(decisions.get("TILE", 0))))
    emitter, rng = MutateEmitter(Selection()), np.random.default_rng(0)
    proposals = [emitter.ask(dataclasses.replace(view, again=False), prompt, rng) for _ in range(400)]
    known = {one.candidate.id: one.candidate for one in proposals if one is not None}
    return dataclasses.replace(view, tried=known.keys(), memory=Remembered(list(known.values()), trials))


def test_where_kernels_may_come_again_they_do_at_values_that_were_not_tried(
    view_of: Any, prompt: Any, space: Any
) -> None:
    space.salts = 1
    one, rng = MutateEmitter(Selection()), np.random.default_rng(1)
    view = _again(view_of, prompt, [{"TILE": 32}])
    assert one.ask(view, prompt, rng) is None
    proposal = one.ask(dataclasses.replace(view, again=True), prompt, rng)
    assert proposal is not None and proposal.candidate.id in view.tried
    assert proposal.params_hint == {"TILE": 16}, "the best of those that were not tried"
    assert (proposal.operator, proposal.candidate.operator) == ("mutate", "mutate")
    everything = [{"TILE": tile} for tile in (8, 16, 32)]
    assert one.ask(dataclasses.replace(_again(view_of, prompt, everything), again=True), prompt, rng) is None


def test_what_a_round_proposed_does_not_come_twice_in_it(view_of: Any, prompt: Any, space: Any) -> None:
    """At which values it is judged next is not known yet: the same would win again."""
    space.salts = 1
    view = dataclasses.replace(_again(view_of, prompt, []), again=True)
    found: list[str] = []
    for seed in range(40):
        now = dataclasses.replace(view, proposed=frozenset(found))
        proposal = MutateEmitter(Selection()).ask(now, prompt, np.random.default_rng(seed))
        if proposal is not None:
            found.append(proposal.candidate.id)
    assert 1 < len(found) == len(set(found))


def test_a_draft_of_known_code_is_the_known_kernel_again(view_of: Any, prompt: Any, space: Any) -> None:
    known = Candidate("cpp", space.render(space.default()), genome={"tiling": 0})
    scores = each(lambda decisions: float(decisions.get("TILE", 0)))
    view = view_of({(1, 1, 1): 0.5}, scores=scores, twin=lambda one: known.id, memory=Remembered([known], []))
    one, rng = MutateEmitter(Selection()), np.random.default_rng(1)
    assert one.ask(view, prompt, rng) is None
    proposal = one.ask(dataclasses.replace(view, again=True), prompt, rng)
    assert proposal is not None
    assert (proposal.candidate.id, proposal.candidate.genome) == (known.id, known.genome)
    assert proposal.candidate.operator == "mutate" and proposal.candidate.parents
