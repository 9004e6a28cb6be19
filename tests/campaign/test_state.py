"""What a search remembers: the archive follows every verdict."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evoforge.archives import Archive, fold_confirmations, racers
from evoforge.campaign._state import State
from evoforge.core import AddStatus, Block, Candidate, Evaluation, Kind, Params, Status, WorkloadTiming
from evoforge.emitters import Proposal


def _measured(candidate: Candidate, log2_speedup: float, kind: Kind, params: Params | None = None) -> Evaluation:
    blocks = tuple(Block(process, 1.0, eager_ms=2.0**log2_speedup) for process in range(5))
    timings = (WorkloadTiming("default", "eager", blocks),)
    return Evaluation(
        candidate.id, params or {}, "task", "target", Status.CORRECT, kind, timings=timings, cell=(1, 2, 3)
    )


@pytest.mark.parametrize("status", [Status.OUT_OF_BOUNDS, Status.WRONG])
def test_a_champion_that_fails_its_last_measurement_makes_room_for_the_next(status: Status) -> None:
    state = State(None)
    best, next_best = (Candidate("cpp", text) for text in ("// best", "// next"))
    for ticket, (candidate, height) in enumerate([(next_best, 0.5), (best, 1.0)]):
        state.propose(ticket, Proposal(candidate, operator="sample", emitter="sample"))
        for kind in (Kind.TRIAL, Kind.CONFIRM):
            state.note(_measured(candidate, height, kind))
    state.settle()
    assert (champion := state.archive.best()) is not None and champion.candidate == best.id
    state.note(_measured(best, 1.0, Kind.BENCH))  # a bench that went well changes nothing
    state.settle()
    assert (champion := state.archive.best()) is not None and champion.candidate == best.id
    state.note(Evaluation(best.id, {}, "task", "target", status, Kind.BENCH))
    state.settle()
    assert (champion := state.archive.best()) is not None and champion.candidate == next_best.id


def test_a_confirmed_kernel_has_the_times_and_the_claim_of_all_its_confirmations() -> None:
    state, candidate = State(None), Candidate("cpp", "// one")
    state.propose(0, Proposal(candidate, operator="sample", emitter="sample"))
    state.note(trial := _measured(candidate, 3.0, Kind.TRIAL))
    assert state.timed(candidate.id, {}) == trial and state.claim(candidate.id) is None
    for height in (1.0, 2.0, 2.0):
        state.note(_measured(candidate, height, Kind.CONFIRM))
    timed, claim = state.timed(candidate.id, {}), state.claim(candidate.id)
    assert timed is not None and timed.kind is Kind.TRIAL and len(timed.timings[0].blocks) == 15
    assert claim is not None and timed.objective == claim.objective == 2.0


_EVENTS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["trial", "confirm"]), st.integers(0, 4), st.integers(-3, 3), st.integers(0, 1)),
        st.tuples(st.just("wrong"), st.integers(0, 4), st.just(0), st.just(0)),
        st.tuples(st.just("race"), st.integers(2, 5), st.integers(-3, 3), st.just(0)),
    ),
    max_size=30,
)


def _took(ms: float) -> tuple[WorkloadTiming, ...]:
    return (WorkloadTiming("default", "eager", tuple(Block(at, ms) for at in range(5))),)


@given(_EVENTS, st.booleans())
@example([("confirm", 0, 1, 0), ("confirm", 1, 2, 1), ("race", 2, 1, 0), ("confirm", 0, 3, 0)], True)  # its rival moves
@example([("confirm", 0, 1, 0), ("confirm", 1, 2, 1), ("race", 2, 1, 0), ("wrong", 0, 0, 0)], True)
def test_the_archive_is_the_fold_of_all_that_was_noted(events: list[tuple[str, int, int, int]], often: bool) -> None:
    state, rows = State(None), []
    candidates = [Candidate("cpp", f"// {at}") for at in range(5)]
    for ticket, candidate in enumerate(candidates):
        state.propose(ticket, Proposal(candidate, operator="sample", emitter="sample"))
    for what, number, height, cell in events:
        if what == "race":
            kernels = candidates[:number]
            facts = racers([(one, {}) for one in kernels])
            new = [
                dataclasses.replace(_measured(one, 0, Kind.RACE), facts=facts, timings=_took(2.0 ** (height * at / 10)))
                for at, one in enumerate(kernels)
            ]
        elif what == "wrong":
            new = [Evaluation(candidates[number].id, {}, "task", "target", Status.WRONG, Kind.BENCH)]
        else:
            new = [dataclasses.replace(_measured(candidates[number], height / 10, Kind(what)), cell=(cell, 0, 0))]
        for row in new:
            rows.append(row)
            state.note(row)
            if often:
                state.settle()
    state.settle()
    # the first trial of a point is the one that counts
    seen, told = set(), []
    for row in rows:
        if row.kind is not Kind.TRIAL or row.candidate not in seen:
            told.append(row)
        seen |= {row.candidate} if row.kind is Kind.TRIAL else set()
    trials, others = ([row for row in told if (row.kind is Kind.TRIAL) is first] for first in (True, False))
    whole = Archive()
    whole.rebuild(
        fold_confirmations(
            [*trials, *others],
            source_lengths={one.id: len(one.source) for one in candidates},
            tickets={one.id: at for at, one in enumerate(candidates)},
        )
    )
    assert state.archive.elites() == whole.elites()


def test_where_the_judge_failed_nothing_is_known_of_the_kernel() -> None:
    state = State(None)
    candidate = Candidate("cpp", "// unlucky")
    state.propose(0, Proposal(candidate, operator="sample", emitter="sample"))
    assert not state.unjudged(candidate.id)
    state.note(Evaluation(candidate.id, {"TILE": 8}, "task", "target", Status.HARNESS_ERROR, reason="no room"))
    assert state.unjudged(candidate.id) and not state.tried(candidate.id) and not state.failed()
    assert (last := state.last_trial(candidate.id)) is not None and last.reason == "no room"
    state.note(_measured(candidate, 0.5, Kind.TRIAL, {"TILE": 8}))
    assert not state.unjudged(candidate.id)
    assert (best := state.best_trial(candidate.id)) is not None and best.objective == pytest.approx(0.5)


def test_what_won_is_told_once_the_best_first_whoever_had_it() -> None:
    state = State(None)
    one, two = (Candidate("cpp", text) for text in ("// one", "// two"))
    for ticket, candidate in enumerate((one, two)):
        state.propose(ticket, Proposal(candidate, operator="sample", emitter="sample"))
    for candidate, tile, height in ((one, 8, 0.1), (one, 16, 0.7), (two, 16, 0.9), (two, 32, 0.5), (one, 4, -1.0)):
        state.note(_measured(candidate, height, Kind.TRIAL, {"TILE": tile}))
    state.note(Evaluation(two.id, {"TILE": 2}, "task", "target", Status.WRONG))
    assert state.winners(3) == [{"TILE": 16}, {"TILE": 32}, {"TILE": 8}]
    assert state.winners(9)[-1] == {"TILE": 4}


def test_a_trial_stands_as_high_as_what_was_confirmed_of_it() -> None:
    """The baseline was slow while it ran."""
    state = State(None)
    lucky, steady = (Candidate("cpp", f"// {name}", genome={"name": name}) for name in ("lucky", "steady"))
    for ticket, (candidate, tile, height) in enumerate(((lucky, 8, 1.3), (steady, 16, 0.9))):
        state.propose(ticket, Proposal(candidate, operator="sample", emitter="sample"))
        state.note(_measured(candidate, height, Kind.TRIAL, {"TILE": tile}))
    assert state.winners(2) == [{"TILE": 8}, {"TILE": 16}]
    assert [elite.candidate for elite in state.lineage(0)] == [lucky.id]
    state.note(_measured(lucky, 0.7, Kind.CONFIRM, {"TILE": 8}))
    assert [state.height(row) for _, row in state.measured()] == pytest.approx([0.7, 0.9])
    assert state.winners(2) == [{"TILE": 16}, {"TILE": 8}]
    assert [elite.candidate for elite in state.lineage(0)] == [steady.id]


_MEASURED = st.tuples(st.sampled_from([Kind.TRIAL, Kind.CONFIRM]), st.integers(0, 4), st.integers(-30, 30))


@given(st.lists(_MEASURED, max_size=20))
def test_what_won_stays_in_order_whatever_is_confirmed_of_it(events: list[tuple[Kind, int, int]]) -> None:
    state = State(None)
    candidates = [Candidate("cpp", f"// {at}") for at in range(5)]
    for ticket, candidate in enumerate(candidates):
        state.propose(ticket, Proposal(candidate, operator="sample", emitter="sample"))
    for kind, number, height in events:
        state.note(_measured(candidates[number], height / 10, kind, {"TILE": number}))
    found = state.winners(9)
    assert sorted(values["TILE"] for values in found) == sorted({at for kind, at, _ in events if kind is Kind.TRIAL})
    trials = [state.trial(candidates[values["TILE"]].id, values) for values in found]
    heights = [state.height(row) for row in trials if row is not None]
    assert heights == sorted(heights, reverse=True)


def test_what_was_stopped_early_counts_as_measured_and_what_is_wrong_does_not() -> None:
    state = State(None)
    made, foreign = Candidate("cpp", "// made", genome={"unroll": "many"}), Candidate("cpp", "// foreign")
    for ticket, candidate in enumerate((made, foreign)):
        state.propose(ticket, Proposal(candidate, operator="sample", emitter="sample"))
    state.note(_measured(made, 0.5, Kind.TRIAL, {"TILE": 8}))
    state.note(dataclasses.replace(_measured(made, -1.0, Kind.TRIAL, {"TILE": 16}), status=Status.PRUNED))
    state.note(Evaluation(made.id, {"TILE": 2}, "task", "target", Status.WRONG))
    state.note(_measured(foreign, 0.9, Kind.TRIAL))
    found = state.measured()
    assert [candidate for candidate, _ in found] == [made, made]
    assert [row.params for _, row in found] == [{"TILE": 8}, {"TILE": 16}]
    assert [row.objective for _, row in found] == pytest.approx([0.5, -1.0], abs=1e-9)


def test_what_a_confirmation_refuted_is_believed_no_more() -> None:
    """Right in its trial and the fastest; wrong on the inputs of its confirmation."""
    state = State(None)
    good, bad = (
        Candidate("cpp", "// good", genome={"unroll": "one"}),
        Candidate("cpp", "// bad", genome={"unroll": "no"}),
    )
    for ticket, (candidate, height, tile) in enumerate([(good, 0.5, 8), (bad, 3.0, 16)]):
        proposal = Proposal(candidate, operator="sample", emitter="sample")
        state.propose(ticket, proposal)
        state.note(_measured(candidate, height, Kind.TRIAL, {"TILE": tile}))
    assert state.failed() == [] and state.winners(1) == [{"TILE": 16}]
    wrong = Evaluation(bad.id, {"TILE": 16}, "task", "target", Status.WRONG, Kind.CONFIRM, reason="out0[3]")
    state.note(wrong)
    assert state.failed() == [bad] and state.last_trial(bad.id) == wrong and state.best_trial(bad.id) is None
    assert state.winners(9) == [{"TILE": 8}]
    assert [candidate.genome for candidate, _ in state.measured()] == [{"unroll": "one"}]
    assert [elite.candidate for elite in state.lineage(0)] == [good.id]
    outcome = state.outcome(proposal, 1, state.tried(bad.id), {})
    assert not outcome.valid and outcome.statuses == (Status.WRONG,) and outcome.evaluation is None


def test_questions_count_whatever_came_back() -> None:
    state = State(None)
    parent = Candidate("cpp", "// parent")
    child = Candidate("cpp", "// child", parents=(parent.id,), operator="improve")
    state.propose(0, Proposal(parent, operator="sample", emitter="sample"))
    for _ in range(2):
        state.ask("repair", [parent.id])
    state.propose(1, Proposal(child, operator="improve", emitter="improve"))
    assert [state.asked(name, parent.id) for name in ("repair", "improve", "aim")] == [2, 1, 0]


def test_a_kernel_that_came_again_is_credited_with_its_own_trials() -> None:
    state = State(None)
    candidate = Candidate("cpp", "// one")
    proposal = Proposal(candidate, operator="mutate", emitter="mutate")
    state.propose(0, proposal)
    first = _measured(candidate, 0.9, Kind.TRIAL, {"TILE": 8})
    again = dataclasses.replace(_measured(candidate, 0.5, Kind.TRIAL, {"TILE": 16}), cell=(0, 0, 0))
    for row in (first, again):
        state.note(row)
    outcome = state.outcome(proposal, 7, [again], {})
    assert (outcome.evaluation, outcome.cell) == (again, (0, 0, 0))
    wrong = Evaluation(candidate.id, {"TILE": 2}, "task", "target", Status.WRONG)
    state.note(wrong)
    outcome = state.outcome(proposal, 8, [wrong], {})
    assert (outcome.evaluation, outcome.cell, outcome.valid) == (None, None, False)


def test_what_the_compiler_made_of_a_kernel_is_known_again() -> None:
    """Of its first trial: at other values it may be what another kernel is from the start."""
    state = State(None)
    first, second = Candidate("cpp", "// first"), Candidate("cpp", "// second")
    state.propose(0, Proposal(first, operator="sample", emitter="sample"))
    for code, tile in (("cafe", 8), ("beef", 16)):
        state.note(dataclasses.replace(_measured(first, 0.5, Kind.TRIAL, {"TILE": tile}), facts={"code": code}))
    assert state.gate.object_twin(second, "beef") is None
    twin = state.gate.object_twin(second, "cafe")
    assert twin is not None and twin.candidate == first.id


def test_what_a_rival_rose_by_is_nobodys_gain() -> None:
    """A challenger that loses had its cell's elite measured again, which did better."""
    state = State(None)
    elite, challenger = Candidate("cpp", "// elite"), Candidate("cpp", "// challenger")
    for ticket, candidate in enumerate((elite, challenger)):
        state.propose(ticket, Proposal(candidate, operator="sample", emitter="sample"))
    for row in (_measured(elite, 0.5, Kind.TRIAL), _measured(elite, 0.5, Kind.CONFIRM)):
        state.note(row)
    state.settle()
    before = {one.cell: one for one in state.archive}
    rows = [_measured(challenger, 0.6, Kind.TRIAL), _measured(challenger, 0.2, Kind.CONFIRM)]
    for row in (*rows, _measured(elite, 2.0, Kind.CONFIRM)):
        state.note(row)
    state.settle()
    (now,) = state.archive
    assert now.candidate == elite.id and now.objective > 0.5, "else this shows nothing"
    outcome = state.outcome(Proposal(challenger, operator="sample", emitter="sample"), 1, rows, before)
    assert (outcome.gain, outcome.placement) == (0.0, AddStatus.REJECTED)
    first = state.outcome(Proposal(elite, operator="sample", emitter="sample"), 0, [rows[0]], {})
    assert first.gain == pytest.approx(now.objective + 5) and first.placement is AddStatus.NEW
    held = {now.cell: dataclasses.replace(now, candidate=challenger.id, objective=0.0)}
    won = state.outcome(Proposal(elite, operator="sample", emitter="sample"), 0, [rows[0]], held)
    assert won.placement is AddStatus.IMPROVED and won.gain == pytest.approx(now.objective)


def test_an_elite_that_falls_while_it_travels_has_no_gain_of_less_than_nothing() -> None:
    state = State(None)
    elite = Candidate("cpp", "// elite")
    proposal = Proposal(elite, operator="sample", emitter="sample")
    state.propose(0, proposal)
    for row in (_measured(elite, 1.0, Kind.TRIAL), _measured(elite, 1.0, Kind.CONFIRM)):
        state.note(row)
    state.settle()
    before = {one.cell: one for one in state.archive}
    again = [_measured(elite, 0.2, Kind.CONFIRM), _measured(elite, 0.2, Kind.CONFIRM)]
    for row in again:
        state.note(row)
    state.settle()
    (now,) = state.archive
    assert now.objective < 1.0, "else this shows nothing"
    assert state.outcome(proposal, 0, again, before).gain == 0.0


def test_a_point_that_compiled_to_another_kernels_code_is_known_though_it_has_no_trial() -> None:
    state = State(None)
    candidate = Candidate("cpp", "// one")
    state.propose(0, Proposal(candidate, operator="mutate", emitter="mutate"))
    assert not state.known(candidate.id, {"TILE": 8})
    state.note(Evaluation(candidate.id, {"TILE": 8}, "task", "target", Status.DUPLICATE))
    state.note(_measured(candidate, 0.5, Kind.TRIAL, {"TILE": 16}))
    state.note(Evaluation(candidate.id, {"TILE": 32}, "task", "target", Status.HARNESS_ERROR))
    assert [state.known(candidate.id, {"TILE": tile}) for tile in (8, 16, 32)] == [True, True, False]
    assert state.trial(candidate.id, {"TILE": 8}) is None


def test_the_archive_changed_when_it_was_measured_and_not_when_its_elite_was_proposed() -> None:
    state = State(None)
    one, two = (Candidate("cpp", text) for text in ("// one", "// two"))
    changed = []
    for ticket, candidate, tile, height in ((3, one, 8, 0.5), (40, two, 8, 0.1), (40, one, 16, 0.9), (50, two, 2, 0.2)):
        state.propose(ticket, Proposal(candidate, operator="sample", emitter="sample"))
        for kind in (Kind.TRIAL, Kind.CONFIRM):
            state.note(_measured(candidate, height, kind, {"TILE": tile}))
            state.settle()
        changed.append(state.changed)
    assert changed == [3, 3, 40, 40]
