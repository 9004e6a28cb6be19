from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from evoforge.core import Signature, TensorSpec
from evoforge.evaluation.timing import (
    Stopwatch,
    paired_block,
    ring_size,
    significantly_below,
    t_half_width,
    t_lower,
)


class Simulated:
    """A side whose seconds follow a rule, on no clock at all."""

    def __init__(self, rule: Callable[[int], float], overhead_s: float = 50e-6) -> None:
        self.rule, self.overhead_s = rule, overhead_s
        self.calls: list[int] = []

    def batch(self, n: int, expected_s: float) -> float:
        self.calls.append(n)
        return self.rule(n) + self.overhead_s

    def empty(self) -> float:
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
    lasts = set()
    last = None
    for _ in range(12):
        times, last = paired_block(sides, rng, last)
        assert times == pytest.approx({"candidate": 1.0, "eager": 2.0, "compiled": 3.0})
        lasts.add(last)
    assert lasts == set(sides)


def test_the_ring_covers_eight_times_the_cache() -> None:
    def ring(nbytes: int, l2: int) -> int:
        return ring_size(Signature((TensorSpec("in0", (nbytes,), (1,), "i8"),), (), ()), l2)

    assert ring(1 << 20, 1 << 20) == 8
    assert ring((1 << 20) + 1, 1 << 20) == 8
    assert ring(3 << 20, 1 << 20) == 3
    assert ring(64 << 20, 1 << 20) == 2
    assert ring(1, 1 << 20) == 64
    assert ring(32 << 20, 256 << 20) == 32  # one GiB
    assert ring(2 << 30, 1 << 20) == 2


def test_student_t_bounds() -> None:
    values = [0.1, 0.2, 0.3, 0.4, 0.5]
    spread = math.sqrt(0.025 / 5)
    assert t_lower(values) == pytest.approx(0.3 - 2.131846786 * spread)
    assert t_half_width(values) == pytest.approx(2.776445105 * spread)
    assert t_lower([1.0]) == -math.inf
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
