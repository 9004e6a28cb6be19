from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from evoforge.core import Signature, TensorSpec
from evoforge.evaluation.timing import (
    Brief,
    Stopwatch,
    agreed_gap,
    cold_size,
    paired_block,
    ring_size,
    significantly_below,
    t_half_width,
)


class Simulated:
    """A side whose seconds follow a rule, on no clock at all."""

    most = 1 << 20
    busy_s = math.inf

    def __init__(self, rule: Callable[[int], float], overhead_s: float = 50e-6, brief: Brief | None = None) -> None:
        self.rule, self.overhead_s, self._brief = rule, overhead_s, brief
        self.calls: list[int] = []

    def brief(self, *, again: bool = False) -> Brief | None:
        return self._brief

    def batch(self, n: int, expected_s: float) -> float:
        self.calls.append(n)
        return self.rule(n) + self.overhead_s

    def empty(self, *, again: bool = False) -> float:
        return self.overhead_s


@pytest.mark.parametrize("call_s", [2e-7, 1e-5, 3e-3, 0.4])
def test_the_empty_round_trip_is_taken_off_and_batches_are_long(call_s: float) -> None:
    side = Simulated(lambda n: n * call_s)
    watch = Stopwatch(side, np.random.default_rng(0))
    watch.calibrate()
    assert watch.call_s == pytest.approx(call_s)
    side.calls.clear()
    times = [watch.batch_ms() for _ in range(20)]
    assert times == pytest.approx([call_s * 1e3] * 20)
    assert all(n * call_s >= 0.010 for n in side.calls)
    assert len(set(side.calls)) > 1 or call_s > 0.01


def test_a_wrong_first_estimate_is_mended() -> None:
    slow_start = iter([1.0])
    side = Simulated(lambda n: n * 1e-5 + next(slow_start, 0.0))
    watch = Stopwatch(side, np.random.default_rng(0))
    watch.calibrate()
    assert watch.batch_ms() == pytest.approx(0.01)


def test_an_overhead_taken_in_a_bad_moment_does_not_make_endless_batches() -> None:
    """T₀ and calibration in a storm of 15 ms a round trip; what comes after it seems to take no time at all."""
    side = Simulated(lambda n: n * 5e-5, overhead_s=0.015)
    watch = Stopwatch(side, np.random.default_rng(0))
    watch.calibrate()
    side.calls.clear()
    side.overhead_s = 0.0
    times = [watch.batch_ms() for _ in range(5)]
    assert max(side.calls) * 5e-5 < 0.5
    assert times == pytest.approx([0.05] * 5)


def test_proportional_time_agrees_with_itself_even_in_noise() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        watch = Stopwatch(Simulated(lambda n: n * 1e-5 * 2 ** rng.normal(0, 1)), rng)
        watch.calibrate()
        assert watch.agrees()


def test_dawdling_by_batch_length_does_not() -> None:
    for factor in (0.3, 3.0):
        watch = Stopwatch(Simulated(lambda n, f=factor: n * 1e-5 * (f if n > 1500 else 1.0)), np.random.default_rng(2))
        watch.calibrate()
        assert not watch.agrees()


def test_a_block_times_every_side_in_random_order() -> None:
    rng = np.random.default_rng(3)
    sides = {}
    for name, call_s in (("candidate", 1e-3), ("eager", 2e-3), ("compiled", 3e-3)):
        sides[name] = Stopwatch(Simulated(lambda n, c=call_s: n * c), rng)
        sides[name].calibrate()
    orders = set()
    for _ in range(24):
        times = paired_block(sides, rng)
        assert times == pytest.approx({"candidate": 1.0, "eager": 2.0, "compiled": 3.0})
        orders.add(tuple(times))
    assert len(orders) > 3


def test_a_side_that_takes_few_calls_at_once_is_asked_for_no_more() -> None:
    side = Simulated(lambda n: n * 1e-5)
    side.most = 33
    watch = Stopwatch(side, np.random.default_rng(0))
    watch.calibrate()
    assert watch.batch_ms() == pytest.approx(0.01)
    assert watch.agrees()
    assert max(side.calls) <= 33


@pytest.mark.parametrize(("long_s", "gap"), [(1e-4, 0.0), (2e-4, 0.0), (0.5e-4, -1.0), (0.25e-4, -2.0)])
def test_the_gap_compares_brief_batches_with_long_ones(long_s: float, gap: float) -> None:
    """350 µs may be a neighbour's, 10 µs go to what is written all over the place."""
    brief = Brief(4, 4e-3 + 360e-6, 10e-6)
    watch = Stopwatch(Simulated(lambda n: n * 10 * long_s, brief=brief), np.random.default_rng(0))
    watch.take_brief()
    watch.calibrate()
    assert watch.gaps() == pytest.approx([gap, gap])


@pytest.mark.parametrize(
    ("again_s", "taken", "gap"), [([8.5e-4], 1, 0.0), ([9e-3, 8e-3, 8.5e-4], 3, 0.0), ([9e-3] * 3, 3, -1.0)]
)
def test_a_disturbed_second_brief_batch_is_taken_again(again_s: list[float], taken: int, gap: float) -> None:
    """100 µs a call in long batches."""
    asked = []

    class Disturbed(Simulated):
        def brief(self, *, again: bool = False) -> Brief:
            asked.append(again)
            return Brief(8, again_s[len(asked) - 2] if again else 9e-4, 0)

    watch = Stopwatch(Disturbed(lambda n: n * 1e-4), np.random.default_rng(0))
    watch.take_brief()
    watch.calibrate()
    assert asked == [False] + [True] * taken
    first, second = watch.gaps()
    assert first == 0.0
    assert second <= gap


@pytest.mark.parametrize(("call_s", "gap"), [(0.05, 0.0), (0.025, -1.0), (0.0125, -2.0)])
def test_a_cut_brief_batch_of_slow_calls_is_like_any_other(call_s: float, gap: float) -> None:
    watch = Stopwatch(
        Simulated(lambda n: n * call_s, brief=Brief(3, 3 * 0.05 + 350e-6, 0, cut=True)), np.random.default_rng(0)
    )
    watch.take_brief()
    watch.calibrate()
    assert not watch.misled
    assert watch.gaps()[0] == pytest.approx(gap, abs=0.01)


def test_a_slow_first_call_does_not_make_a_brief_batch_too_brief() -> None:
    """Three calls of 100 µs show nothing: whoever calls so quickly has to take a whole batch."""
    brief = Brief(3, 300e-6, 0, cut=True)
    watch = Stopwatch(Simulated(lambda n: n * 1e-4, brief=brief), np.random.default_rng(0))
    watch.take_brief()
    assert watch.misled, "what it took says so"
    slow = Stopwatch(Simulated(lambda n: n * 1e-4, brief=brief._replace(seconds=0.15)), np.random.default_rng(0))
    slow.take_brief()
    assert not slow.misled
    slow.calibrate()
    assert slow.misled, "and so does what calls take later"
    whole = Stopwatch(Simulated(lambda n: n * 1e-4, brief=brief._replace(cut=False)), np.random.default_rng(0))
    whole.take_brief()
    whole.calibrate()
    assert not whole.misled
    assert whole.gaps() == [0.0, 0.0]


def test_who_is_slow_until_it_is_calibrated_is_suspect() -> None:
    slow = iter([0.05] * 2)
    brief = Brief(3, 0.15, 0, cut=True)
    watch = Stopwatch(Simulated(lambda n: n * next(slow, 1e-4), brief=brief), np.random.default_rng(0))
    watch.take_brief()
    watch.calibrate()
    assert not watch.misled
    watch.batch_ms()
    assert watch.gaps() == [-1.0, -1.0]


def test_being_honest_in_the_last_batch_does_not_help() -> None:
    """Three batches of answers that were kept; the fourth is as slow as the brief one."""
    slow = iter([0.05] * 2 + [0.01] * 3)
    watch = Stopwatch(
        Simulated(lambda n: n * next(slow, 0.05), brief=Brief(3, 0.15, 0, cut=True)), np.random.default_rng(0)
    )
    watch.take_brief()
    watch.calibrate()
    for _ in range(4):
        watch.batch_ms()
    assert watch.work_s == pytest.approx(0.01)
    assert max(watch.gaps()) < -2


@pytest.mark.parametrize(("brief_s", "gap"), [(490e-6, 0.0), (245e-6, 0.0), (980e-6, -1.36)])
def test_a_short_batch_tells_large_differences_only(brief_s: float, gap: float) -> None:
    """Seven calls of 35 µs: a short batch may take 2.5 times as long for a neighbour's sake."""
    watch = Stopwatch(Simulated(lambda n: n * 35e-6, brief=Brief(7, brief_s, 0)), np.random.default_rng(0))
    watch.take_brief()
    watch.calibrate()
    assert watch.gaps()[0] == pytest.approx(gap, abs=0.1)
    kept = Stopwatch(Simulated(lambda n: n * 1e-7, brief=Brief(7, brief_s, 0)), np.random.default_rng(0))
    kept.take_brief()
    kept.calibrate()
    assert kept.gaps()[0] < -7


@pytest.mark.parametrize(("busy_s", "gap"), [(0.8e-3, 0.0), (3.2e-3, -2.0), (9e-3, -3.0)])
def test_time_in_which_the_kernel_did_not_run_is_no_work(busy_s: float, gap: float) -> None:
    """100 µs a call in long batches; 6.4 ms passed for 8 calls."""
    brief = Brief(8, 6.4e-3 + 350e-6, 0, busy_s + 350e-6)
    watch = Stopwatch(Simulated(lambda n: n * 1e-4, brief=brief), np.random.default_rng(0))
    watch.take_brief()
    watch.calibrate()
    assert watch.gaps() == pytest.approx([gap, gap])


def test_a_disturbed_long_batch_hides_no_skipped_calls() -> None:
    """Half of the calls are left out: 50 µs of work per call where it takes 100 µs, for somebody else ran, too."""

    class Working(Simulated):
        busy_s = 0.0

        def batch(self, n: int, expected_s: float) -> float:
            self.busy_s += n * 50e-6
            return super().batch(n, expected_s)

    brief = Brief(8, 0.8e-3 + 350e-6, 0, 0.8e-3 + 350e-6)
    watch = Stopwatch(Working(lambda n: n * 1e-4, brief=brief), np.random.default_rng(0))
    watch.take_brief()
    watch.calibrate()
    watch.batch_ms()
    assert watch.gaps() == pytest.approx([-1.0, -1.0], abs=0.01)


@pytest.mark.parametrize("late", [7, 12])
def test_threads_that_part_late_get_twice_the_chances(late: int) -> None:
    """Pairs of batches of which every longer one looks faster, until the `late`th."""
    pairs = [factor for pair in range(1, 13) for factor in (1.0, 1.0 if pair == late else 0.5)]

    def watch() -> Stopwatch:
        factors = iter(pairs)
        side = Simulated(lambda n: n * 1e-4, overhead_s=0.0)
        found = Stopwatch(side, np.random.default_rng(0))
        found.calibrate()
        side.rule = lambda n: n * 1e-4 * next(factors)
        return found

    assert not watch().agrees()
    assert watch().agrees(parting=True)


def watched(call_s: float, brief_s: float) -> Stopwatch:
    """One process: seconds of a call in long batches and in a brief one of 8."""
    watch = Stopwatch(
        Simulated(lambda n: n * call_s, brief=Brief(8, 8 * brief_s + 350e-6, 0)), np.random.default_rng(0)
    )
    watch.take_brief()
    watch.calibrate()
    return watch


QUIET, DISTURBED, CHEAT = (1e-3, 1e-3), (1e-3, 4e-3), (0.25e-3, 1e-3)


@pytest.mark.parametrize(
    ("processes", "parting", "gap"),
    [
        ([QUIET] * 5 + [DISTURBED] * 4, False, 0.0),
        ([QUIET] * 4 + [DISTURBED] * 5, False, -2.0),
        ([QUIET] * 1 + [DISTURBED] * 2, True, 0.0),
        ([QUIET] * 1 + [DISTURBED] * 3, True, -2.0),
        ([QUIET] * 2 + [DISTURBED] * 13, True, 0.0),
        ([CHEAT], True, -2.0),
        ([QUIET] * 7 + [CHEAT] * 8, True, -2.0),
    ],
)
def test_skipped_calls_show_in_most_processes(processes: list[tuple[float, float]], parting: bool, gap: float) -> None:
    """Who behaves in half of the processes is still held to the time that the others make believe."""
    found = agreed_gap([watched(*one) for one in processes], parting=parting)
    assert found == pytest.approx(gap, abs=0.01)


def test_what_writing_to_cold_memory_may_cost_is_no_gap() -> None:
    """25 µs a call in cache, 70 µs where 256 KiB go to memory that no cache holds."""
    brief = Brief(64, 64 * 70e-6, 2.8e-3)
    watch = Stopwatch(Simulated(lambda n: n * 25e-6, brief=brief), np.random.default_rng(0))
    watch.take_brief()
    watch.calibrate()
    assert set(watch.gaps()) <= {0.0}


def test_the_ring_covers_eight_times_the_cache() -> None:
    def ring(nbytes: int, l2: int) -> int:
        return ring_size(Signature((TensorSpec("in0", (nbytes,), (1,), "i8"),), (), ()), l2)

    assert ring(1 << 20, 1 << 20) == 8
    assert ring((1 << 20) + 1, 1 << 20) == 8
    assert ring(3 << 20, 1 << 20) == 3
    assert ring(64 << 20, 1 << 20) == 3
    assert ring(1, 1 << 20) == 64
    assert ring(32 << 20, 256 << 20) == 32  # one GiB
    assert ring(2 << 30, 1 << 20) == 3


def test_a_cold_ring_has_256_mib_or_is_none() -> None:
    def cold(nbytes: int, tensors: int = 1) -> int | None:
        return cold_size(Signature((TensorSpec("in", (nbytes,), (1,), "i8"),) * tensors, (), ()))

    assert cold(256 << 10) == 1024
    assert cold((256 << 10) - 1) is None, "more than 1024 sets"
    assert cold(3 << 20) == 86
    assert cold(1 << 30) == 1
    assert cold(16 << 10, tensors=16) is None, "more than 8192 tensors"


def test_student_t_bounds() -> None:
    values = [0.1, 0.2, 0.3, 0.4, 0.5]
    spread = math.sqrt(0.025 / 5)
    assert t_half_width(values) == pytest.approx(2.776445105 * spread)
    assert t_half_width([1.0]) == math.inf
    assert t_half_width([]) == math.inf


def test_pruning_needs_four_blocks_and_significance() -> None:
    assert not significantly_below([-1, -1, -1], 0)
    assert significantly_below([-1, -2, -3, -4], 0)
    assert not significantly_below([-1, -2, -3, 0.5], 0)
    assert significantly_below([-4, -2, -3, -5, -6, 1], 0)
    assert not significantly_below([1, 2, 3, 4, 5], 0)
    assert significantly_below([1, 2, 3, 4], 5)


def test_pruning_agrees_with_the_exact_wilcoxon_test() -> None:
    from scipy.stats import wilcoxon

    rng = np.random.default_rng(4)
    for _ in range(100):
        values = rng.normal(-0.5, 1, int(rng.integers(4, 12))).tolist()
        expected = wilcoxon(values, alternative="less", method="exact").pvalue < 0.1
        assert significantly_below(values, 0.0) == expected


@pytest.mark.parametrize("brief", [Brief(64, 300e-6, 0), Brief(64, 0.01, 0.01), None])
def test_a_brief_batch_lost_in_noise_says_nothing(brief: Brief | None) -> None:
    watch = Stopwatch(Simulated(lambda n: n * 1e-6, brief=brief), np.random.default_rng(0))
    watch.take_brief()
    watch.calibrate()
    assert set(watch.gaps()) <= {0.0}
