"""The elite rule: who becomes an elite, with which numbers."""

import math
import statistics
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoforge.archives import Archive, fold_confirmations, lower_bound, process_ratios
from evoforge.core import Block, Evaluation, Kind, Status, WorkloadTiming
from evoforge.errors import UsageError

ID = "c" * 64


def blocks(ratios: list[list[float]], side: str = "eager") -> tuple[Block, ...]:
    """One inner list per process: the log2 ratios of its blocks."""
    made = []
    for process, row in enumerate(ratios):
        for ratio in row:
            times = {f"{side}_ms": 2.0**ratio}
            made.append(Block(process, 1.0, **times))
    return tuple(made)


def confirm(*workloads: list[list[float]], side: str = "eager", **changes: Any) -> Evaluation:
    timings = tuple(WorkloadTiming(f"w{index}", side, blocks(ratios, side)) for index, ratios in enumerate(workloads))
    base = Evaluation(ID, {"T": 4}, "task", "target", Status.CORRECT, Kind.CONFIRM, timings=timings, cell=(1, 2, 3))
    return replace(base, **changes)


def failed(status: Status, kind: Kind = Kind.CONFIRM) -> Evaluation:
    return Evaluation(ID, {"T": 4}, "task", "target", status, kind)


FIVE = [[1.0], [1.1], [0.9], [1.2], [1.3]]


def test_objective_is_the_median_and_lower_the_student_t_bound_over_processes() -> None:
    # The median of each process comes first: the wild third block of each must not count.
    (elite,) = fold_confirmations(
        [confirm([[value, value, 9.0] for (value,) in FIVE])], source_lengths={ID: 77}, tickets={ID: 3}
    )
    values = [value for (value,) in FIVE]
    expected = statistics.fmean(values) - 2.131846786326649 * statistics.stdev(values) / math.sqrt(5)
    assert elite.objective == pytest.approx(1.1)
    assert elite.lower == pytest.approx(expected)
    assert (elite.candidate, elite.params, elite.cell) == (ID, {"T": 4}, (1, 2, 3))
    assert (elite.source_length, elite.ticket) == (77, 3)


def test_the_bound_covers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    samples = rng.normal(0.3, 0.1, (4000, 5))
    covered = sum(lower_bound(row.tolist()) <= 0.3 for row in samples)
    assert 0.94 <= covered / 4000 <= 0.975  # the cap at the median can only raise it above 0.95


def test_five_processes_are_needed_and_evaluations_pool() -> None:
    assert fold_confirmations([confirm(FIVE[:4])]) == []
    assert fold_confirmations([confirm([[1.0] * 50])]) == []
    (pooled,) = fold_confirmations([confirm(FIVE[:3]), confirm(FIVE[3:])])
    (whole,) = fold_confirmations([confirm(FIVE)])
    assert pooled == whole


def test_workloads_combine_by_the_geometric_mean_within_a_process() -> None:
    first, second = FIVE, [[0.0], [0.5], [0.0], [0.5], [0.0]]
    assert process_ratios([confirm(first, second)]) == pytest.approx([0.5, 0.8, 0.45, 0.85, 0.65])


def test_a_process_without_every_workload_or_baseline_is_left_out() -> None:
    six = [*FIVE, [1.0]]
    assert len(process_ratios([confirm(six, FIVE)])) == 5
    assert len(process_ratios([confirm(FIVE, FIVE), confirm(FIVE)])) == 5
    untimed = confirm(FIVE, side="eager")
    wrong_side = replace(untimed, timings=(replace(untimed.timings[0], baseline="compiled"),))
    assert process_ratios([wrong_side]) == []
    assert fold_confirmations([wrong_side]) == []


def test_each_workload_is_compared_with_its_own_baseline() -> None:
    both = tuple(Block(process, 1.0, eager_ms=2.0, compiled_ms=8.0) for process in range(5))
    timings = (WorkloadTiming("a", "eager", both), WorkloadTiming("b", "compiled", both))
    (elite,) = fold_confirmations([replace(confirm(FIVE), timings=timings)])
    assert elite.objective == 2.0
    assert elite.lower == 2.0


def test_the_objective_is_clipped_and_the_bound_is_not() -> None:
    (elite,) = fold_confirmations([confirm([[-7.0], [-7.0], [-7.0], [-7.0], [-7.0]])])
    assert elite.objective == -5.0
    assert elite.lower == -7.0


def test_params_are_one_group_whatever_their_order() -> None:
    one = confirm(FIVE[:3], params={"T": 4, "U": 2})
    two = confirm(FIVE[3:], params={"U": 2, "T": 4})
    other = confirm(FIVE, params={"T": 8, "U": 2})
    elites = fold_confirmations([one, other, two])
    assert [dict(elite.params) for elite in elites] == [{"T": 4, "U": 2}, {"T": 8, "U": 2}]


def test_trials_do_not_confirm_but_can_give_the_cell() -> None:
    trial = confirm(FIVE, kind=Kind.TRIAL, cell=(0, 0, 0))
    assert fold_confirmations([trial]) == []
    (elite,) = fold_confirmations([trial, confirm(FIVE, cell=None)])
    assert elite.cell == (0, 0, 0)
    (elite,) = fold_confirmations([trial, confirm(FIVE, cell=(1, 1, 1)), confirm(FIVE, cell=(2, 2, 2))])
    assert elite.cell == (2, 2, 2)
    assert fold_confirmations([confirm(FIVE, cell=None)]) == []


def test_bench_counts_only_when_asked_but_its_failures_always() -> None:
    bench = confirm(FIVE, kind=Kind.BENCH)
    assert fold_confirmations([bench]) == []
    assert len(fold_confirmations([bench], include_bench=True)) == 1
    assert fold_confirmations([confirm(FIVE), failed(Status.WRONG, Kind.BENCH)]) == []


@pytest.mark.parametrize(
    "status", [Status.WRONG, Status.VIOLATION, Status.OUT_OF_BOUNDS, Status.CRASH, Status.TIMEOUT, Status.UNSUPPORTED]
)
@pytest.mark.parametrize("kind", list(Kind))
def test_a_failure_of_the_kernel_removes_it_before_or_after(status: Status, kind: Kind) -> None:
    assert fold_confirmations([confirm(FIVE), failed(status, kind)]) == []
    assert fold_confirmations([failed(status, kind), confirm(FIVE)]) == []


def test_what_beats_physics_is_never_rewarded() -> None:
    beyond = confirm(FIVE, status=Status.QUARANTINED)
    assert fold_confirmations([confirm(FIVE), beyond]) == []


@pytest.mark.parametrize("status", [Status.HARNESS_ERROR, Status.UNMEASURED, Status.OUT_OF_MEMORY, Status.BUILD_ERROR])
def test_a_failure_of_the_machine_does_not(status: Status) -> None:
    assert len(fold_confirmations([confirm(FIVE), failed(status)])) == 1


def test_a_suspect_clock_must_be_outvoted() -> None:
    suspect = failed(Status.TIMING_SUSPECT)
    assert fold_confirmations([confirm(FIVE), suspect]) == []
    assert len(fold_confirmations([confirm(FIVE), suspect, confirm(FIVE)])) == 1
    assert len(fold_confirmations([confirm(FIVE), failed(Status.TIMING_SUSPECT, Kind.TRIAL)])) == 1


def test_a_failure_with_other_params_leaves_it_alone() -> None:
    other = replace(failed(Status.WRONG), params={"T": 8})
    assert len(fold_confirmations([confirm(FIVE), other])) == 1


@pytest.mark.parametrize("field,value", [("task", "other"), ("target", "other"), ("protocol", 99)])
def test_incomparable_evaluations_are_refused(field: str, value: Any) -> None:
    with pytest.raises(UsageError, match="one task, target and protocol"):
        fold_confirmations([confirm(FIVE), replace(confirm(FIVE), **{field: value})])


def test_one_process_has_no_bound() -> None:
    with pytest.raises(UsageError, match="at least two"):
        lower_bound([1.0])


def test_the_bound_never_passes_the_median() -> None:
    ratios = [0.0] * 51 + [10.0] * 49
    assert lower_bound(ratios) == 0.0


_CONFIRMS = st.builds(
    lambda candidate, size, ratios: confirm(
        [[ratio] for ratio in ratios], candidate=candidate, params={"T": size}, cell=(size, 0, 0)
    ),
    st.sampled_from(["a" * 64, "b" * 64]),
    st.integers(0, 1),
    st.lists(st.floats(-6, 3), min_size=1, max_size=7),
)
_FAILS = st.builds(
    lambda candidate, size, status: replace(failed(status), candidate=candidate, params={"T": size}),
    st.sampled_from(["a" * 64, "b" * 64]),
    st.integers(0, 1),
    st.sampled_from([Status.WRONG, Status.HARNESS_ERROR, Status.TIMING_SUSPECT]),
)


@given(
    st.tuples(st.lists(_CONFIRMS, max_size=12), st.lists(_FAILS, max_size=2))
    .map(lambda pair: pair[0] + pair[1])
    .flatmap(lambda evaluations: st.tuples(st.just(evaluations), st.permutations(evaluations)))
)
def test_the_fold_does_not_depend_on_the_order(case: tuple[list[Evaluation], list[Evaluation]]) -> None:
    one, other = (fold_confirmations(evaluations) for evaluations in case)
    assert one == other  # to the last bit: means and deviations here are exactly rounded
    for elite in one:
        assert elite.lower <= elite.objective
    archive = Archive()
    archive.rebuild(one)
    assert {(kept.cell, kept.lower) for kept in archive} == {
        (cell, max(e.lower for e in one if e.cell == cell)) for cell in {e.cell for e in one}
    }
