"""What models are asked: by emitter, from a view with a memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from evoforge.core import Block, Candidate, Elite, Evaluation, MetaPrompt, Status, WorkloadTiming
from evoforge.emitters import MODEL_EMITTERS, SearchView, model_emitters
from evoforge.emitters.assignment import bottleneck
from evoforge.prompts import BOTTLENECKS, Answer, TaskBrief

TASK = TaskBrief("source", {"default": "in0: f32[8]"}, "tight", "ieee", "cpp", "contract")


def judged(candidate: Candidate, status: Status, *, ms: float = 1.0, bound_ms: float | None = 0.5) -> Evaluation:
    timed = status is Status.CORRECT
    timings = (WorkloadTiming("default", "eager", (Block(0, ms, 2.0),), bound_ms),) if timed else ()
    return Evaluation(candidate.id, {}, "t", "c", status, reason="" if timed else "it went wrong", timings=timings)


class Past:
    """A memory of candidates with their latest evaluation."""

    def __init__(self, rows: Sequence[tuple[Candidate, Evaluation]] = ()) -> None:
        self.rows = {candidate.id: (candidate, row) for candidate, row in rows}
        self.questions: Counter[tuple[str, str]] = Counter()
        self.claims: dict[str, Elite] = {}
        self.confirmed: dict[str, Evaluation] = {}

    def add(self, candidate: Candidate, status: Status) -> None:
        self.rows[candidate.id] = (candidate, judged(candidate, status))

    def candidate(self, candidate: str) -> Candidate | None:
        return self.rows[candidate][0] if candidate in self.rows else None

    def trial(self, candidate: str, params: Mapping[str, int]) -> Evaluation | None:
        return self.best_trial(candidate)

    def timed(self, candidate: str, params: Mapping[str, int]) -> Evaluation | None:
        return self.confirmed.get(candidate) or self.trial(candidate, params)

    def claim(self, candidate: str) -> Elite | None:
        return self.claims.get(candidate)

    def known(self, candidate: str, params: Mapping[str, int]) -> bool:
        return candidate in self.rows

    def best_trial(self, candidate: str) -> Evaluation | None:
        row = self.last_trial(candidate)
        return row if row is not None and row.status is Status.CORRECT else None

    def last_trial(self, candidate: str) -> Evaluation | None:
        return self.rows[candidate][1] if candidate in self.rows else None

    def children(self, candidate: str) -> list[Candidate]:
        return [one for one, _ in self.rows.values() if candidate in one.parents]

    def asked(self, operator: str, candidate: str) -> int:
        made = sum(one.operator == operator for one in self.children(candidate))
        return max(made, self.questions[operator, candidate])

    def failed(self) -> list[Candidate]:
        return [one for one, row in self.rows.values() if not row.status.correct]


@pytest.fixture
def past() -> Past:
    return Past()


@pytest.fixture
def view(view_of: Any, past: Past) -> SearchView:
    made = view_of({(1, 1, 2): 0.2, (0, 0, 1): -1.0, (2, 1, 2): 0.9}, task=TASK, memory=past)
    for _, candidate in made.elites.values():
        past.add(candidate, Status.CORRECT)
    return made  # type: ignore[no-any-return]


def asked(name: str, view: SearchView, prompt: MetaPrompt, seed: int = 0) -> Any:
    (emitter,) = model_emitters([name])
    assert emitter.ready(view)
    return emitter.assign(view, prompt, np.random.default_rng(seed))


def test_an_empty_archive_can_only_be_invented_for(view_of: Any, past: Past) -> None:
    empty = view_of({}, task=TASK, memory=past)
    assert [emitter.name for emitter in model_emitters() if emitter.ready(empty)] == ["invent"]
    assert not any(emitter.ready(view_of({(1, 1, 1): 0.0})) for emitter in model_emitters())


@pytest.mark.parametrize("name", ["invent", "improve", "aim", "cross"])
def test_an_assignment_becomes_a_proposal_with_its_provenance(name: str, view: SearchView, prompt: MetaPrompt) -> None:
    assignment = asked(name, view, prompt)
    answer = Answer("int evo_run;", "it will be faster", "file")
    proposal = assignment.proposal(answer, meta_prompt=prompt.ref, model="m", exemplars=["e"], usd=0.1)
    candidate = proposal.candidate
    assert (candidate.operator, candidate.meta_prompt, candidate.model) == (name, prompt.ref, "m")
    assert candidate.notes["hypothesis"] == "it will be faster"
    assert candidate.notes["exemplars"] == ["e"]
    assert candidate.parents == tuple(view.elites[cell][1].id for cell in proposal.parent_cells)
    assert proposal.cost_usd == 0.1
    assert len(candidate.parents) == {"invent": 0, "improve": 1, "aim": 1, "cross": 2}[name]


def test_the_same_seed_asks_the_same(view: SearchView, prompt: MetaPrompt) -> None:
    for name in ("invent", "improve", "aim", "cross"):
        assert asked(name, view, prompt, 7) == asked(name, view, prompt, 7)


def test_improve_names_one_bottleneck_and_what_was_tried(view: SearchView, prompt: MetaPrompt, past: Past) -> None:
    parent = view.elites[(2, 1, 2)][1]
    child = Candidate("cpp", "child", parents=(parent.id,), operator="improve", notes={"hypothesis": "unroll more"})
    past.add(child, Status.WRONG)
    found = [asked("improve", view, prompt, seed) for seed in range(20)]
    assert {one.brief.bottleneck for one in found} <= set(BOTTLENECKS)
    (mine, *_) = [one for one in found if one.parent_cells == ((2, 1, 2),)]
    (attempt,) = mine.brief.attempts
    assert (attempt.hypothesis, attempt.status, attempt.reason) == ("unroll more", "WRONG", "it went wrong")
    assert [one.candidate.id for one in mine.brief.bad] == [child.id]
    assert mine.params_hint == {"TILE": 32}


def test_a_child_is_held_against_its_parent_by_claims_and_else_by_times(
    view: SearchView, prompt: MetaPrompt, past: Past
) -> None:
    elite, parent = view.elites[(2, 1, 2)]
    child = Candidate("cpp", "child", parents=(parent.id,), operator="improve")
    slow_baseline = WorkloadTiming("default", "eager", (Block(0, 0.5, 0.5),))  # 1x it, where the parent was 2x
    row = replace(judged(child, Status.CORRECT), timings=(slow_baseline,))
    past.rows[child.id] = (child, row)

    def attempt() -> Any:
        found = [asked("improve", view, prompt, seed) for seed in range(20)]
        (mine, *_) = [one for one in found if one.parent_cells == ((2, 1, 2),)]
        return mine.brief.attempts[0], mine.brief.parents[0]

    tried, shown = attempt()
    assert (tried.over_parent, tried.confirmed) == (1.0, False)
    past.claims = {parent.id: elite, child.id: replace(elite, candidate=child.id, objective=elite.objective - 0.5)}
    past.confirmed[parent.id] = confirmed = judged(parent, Status.CORRECT, ms=0.8)
    tried, shown = attempt()
    assert (tried.over_parent, tried.confirmed) == (pytest.approx(-0.5), True)
    assert shown.evaluation == confirmed and shown.outcome.startswith(f"{2**elite.objective:.2f}x")


def test_what_authors_tried_is_told_before_what_the_generator_did(
    view: SearchView, prompt: MetaPrompt, past: Past
) -> None:
    parent = view.elites[(2, 1, 2)][1]
    written = Candidate("cpp", "written", parents=(parent.id,), operator="improve", notes={"hypothesis": "unroll"})
    past.add(written, Status.WRONG)
    for number in range(12):
        past.add(Candidate("cpp", f"made {number}", parents=(parent.id,), genome={"a": number}), Status.CORRECT)
    found = [asked("improve", view, prompt, seed) for seed in range(20)]
    (mine, *_) = [one for one in found if one.parent_cells == ((2, 1, 2),)]
    assert [one.hypothesis for one in mine.brief.attempts] == ["unroll", *[""] * 7]


def test_a_question_that_came_back_empty_counts_as_asked(view: SearchView, prompt: MetaPrompt, past: Past) -> None:
    (repair,) = model_emitters(["repair"])
    broken = Candidate("cpp", "broken", operator="invent", model="m")
    past.add(broken, Status.BUILD_ERROR)
    past.questions["repair", broken.id] = 1
    assert asked("repair", view, prompt).brief.turn == 1
    past.questions["repair", broken.id] = 2
    assert not repair.ready(view)


def test_fast_elites_are_parents_more_often(view: SearchView, prompt: MetaPrompt) -> None:
    chosen = [asked("improve", view, prompt, seed).parent_cells[0] for seed in range(200)]
    assert chosen.count((2, 1, 2)) > 2 * chosen.count((0, 0, 1)) > 0


def test_aim_goes_for_another_cell_from_the_nearest_elite(view: SearchView, prompt: MetaPrompt) -> None:
    for seed in range(20):
        assignment = asked("aim", view, prompt, seed)
        assert assignment.target_cell in view.reachable
        assert assignment.parent_cells != (assignment.target_cell,)
        assert assignment.brief.target_cell == assignment.target_cell


def test_repair_is_asked_twice_at_most_and_never_for_an_attack(
    view: SearchView, prompt: MetaPrompt, past: Past
) -> None:
    (repair,) = model_emitters(["repair"])
    past.add(Candidate("cpp", "evil", operator="invent", model="m"), Status.VIOLATION)
    past.add(Candidate("cpp", "rendered", genome={"a": 1}), Status.BUILD_ERROR)
    assert not repair.ready(view)
    broken = Candidate("cpp", "broken", operator="invent", model="m")
    past.add(broken, Status.BUILD_ERROR)
    assignment = asked("repair", view, prompt)
    assert assignment.parents == (broken,)
    assert assignment.brief.parents[0].evaluation.reason == "it went wrong"
    assert not repair.ready(replace(view, asked=frozenset({("repair", broken.id)})))
    first = Candidate("cpp", "still broken", parents=(broken.id,), operator="repair", model="m")
    past.add(first, Status.WRONG)
    second = Candidate("cpp", "and again", parents=(first.id,), operator="repair", model="m")
    past.add(second, Status.WRONG)
    third = Candidate("cpp", "another", parents=(broken.id,), operator="repair", model="m")
    past.add(third, Status.CRASH)
    parents = {asked("repair", view, prompt, seed).parents[0].id for seed in range(30)} if repair.ready(view) else set()
    assert broken.id not in parents
    assert second.id not in parents


def test_parametrise_takes_a_text_without_parameters_once(
    view: SearchView, prompt: MetaPrompt, past: Past, view_of: Any
) -> None:
    (parametrise,) = model_emitters(["parametrise"])
    assert not parametrise.ready(view), "generated kernels declare their own"
    by_hand = view_of({(1, 1, 2): 0.2}, task=TASK, memory=past)
    cell, (elite, candidate) = next(iter(by_hand.elites.items()))
    plain = replace(candidate, genome=None)
    shown = replace(by_hand, elites={cell: (elite, plain)})
    past.add(plain, Status.CORRECT)
    assert asked("parametrise", shown, prompt).target_cell == cell
    past.add(Candidate("cpp", "with parameters", parents=(plain.id,), operator="parametrise"), Status.CORRECT)
    assert not parametrise.ready(shown)


def test_a_child_keeps_the_licence_of_what_it_may_quote(view: SearchView, prompt: MetaPrompt) -> None:
    cell, (elite, candidate) = next(iter(view.elites.items()))
    foreign = replace(candidate, licence="MIT")
    one = replace(view, elites={cell: (elite, foreign)})
    made = asked("improve", one, prompt).proposal(Answer("x", "", "file"), meta_prompt=None, model=None)
    assert made.candidate.licence == "MIT"


@pytest.mark.parametrize(
    ("cell", "ms", "bound_ms", "expected"),
    [
        ((1, 1, 0), 1.0, 0.5, "bandwidth"),
        ((1, 1, 2), 1.0, 0.5, "cache"),
        ((1, 0, 3), 1.0, 0.5, "compute"),
        ((1, 1, 3), 0.01, 0.005, "overhead"),
        ((1, 1, 3), 1.0, 0.95, None),
        ((1, 1, 3), 1.0, 0.2, "latency"),
        ((1, 1, 3), 1.0, 0.6, "bandwidth"),
        ((1,), 1.0, 0.5, None),
    ],
)
def test_the_bottleneck_follows_from_cell_and_time(
    cell: tuple[int, ...], ms: float, bound_ms: float, expected: str | None
) -> None:
    row = judged(Candidate("cpp", "x"), Status.CORRECT, ms=ms, bound_ms=bound_ms)
    assert bottleneck(cell, row) == expected
    busy = "compute" if expected in ("latency", "bandwidth") and cell[2] == 3 else expected
    assert bottleneck(cell, row, busy=True) == busy, "no bandwidth helps where arithmetic is what there is to do"


def test_every_name_has_its_emitter() -> None:
    assert tuple(emitter.name for emitter in model_emitters()) == MODEL_EMITTERS
