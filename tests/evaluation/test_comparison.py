from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoforge.evaluation.comparison import Verdict, judged, looked_at

QUIET = [0.001, -0.001, 0.0005, -0.0005, 0.0, 0.001, -0.001]


def test_a_clear_difference_has_a_direction() -> None:
    ratios = [0.20, 0.21, 0.19, 0.20, 0.22, 0.18, 0.20]
    assert judged(ratios, QUIET).verdict is Verdict.FAST
    assert judged([-ratio for ratio in ratios], QUIET).verdict is Verdict.SLOW
    found = judged(ratios, QUIET)
    assert found.ratio == pytest.approx(2**0.2)
    assert found.low < found.ratio < found.high


def test_what_lies_within_the_machines_noise_is_the_same() -> None:
    ratios = [0.05] * 7
    assert judged(ratios, QUIET).verdict is Verdict.FAST
    assert judged(ratios, [0.2, -0.2, 0.1, -0.1, 0.2, -0.2, 0.0]).verdict is Verdict.SAME
    assert judged([0.01] * 7, [0.0] * 7).verdict is Verdict.SAME  # below one percent


@pytest.mark.parametrize("spread", [0.005, 0.03, 0.3])
def test_noise_is_seldom_fast_however_often_it_is_looked_at(spread: float) -> None:
    rng = np.random.default_rng(0)
    found = [looked_at(lambda: (rng.normal(0, spread), rng.normal(0, spread / 3))).verdict for _ in range(2000)]
    assert found.count(Verdict.FAST) <= 10


def test_a_small_difference_in_noise_is_found_by_looking_again() -> None:
    """4% at a spread of 2.6% from process to process."""
    rng = np.random.default_rng(0)
    pairs = [0]

    def pair() -> tuple[float, float]:
        pairs[0] += 1
        return rng.normal(0.057, 0.037), rng.normal(0, 0.015)

    found = [looked_at(pair).verdict for _ in range(400)]
    assert found.count(Verdict.FAST) >= 380
    assert 7 * 400 < pairs[0] < 20 * 400


@pytest.mark.parametrize(("middle", "spread", "asked"), [(0.0, 0.002, 8), (0.012, 0.0001, 32), (0.0, 0.2, 32)])
def test_what_is_alike_is_given_up_at_the_first_look(middle: float, spread: float, asked: int) -> None:
    """Not what differs by less than the margin, nor what cannot be told from something that does."""
    pairs = [0]

    def pair() -> tuple[float, float]:
        pairs[0] += 1
        return middle + spread * (-1) ** pairs[0], 0.001 * (-1) ** pairs[0]

    assert looked_at(pair).verdict is Verdict.SAME
    assert pairs[0] == asked


def test_a_storm_over_one_pair_in_ten_hides_no_difference_and_makes_none() -> None:
    rng = np.random.default_rng(0)

    def verdicts(difference: float) -> list[Verdict]:
        def pair() -> tuple[float, float]:
            storm = rng.random() < 0.1
            return rng.normal(difference, 0.8 if storm else 0.03), rng.normal(0, 0.4 if storm else 0.01)

        return [looked_at(pair).verdict for _ in range(400)]

    assert verdicts(0.07).count(Verdict.FAST) >= 370
    assert verdicts(0.0).count(Verdict.FAST) <= 2


@given(st.lists(st.floats(-3, 3), min_size=2, max_size=9), st.lists(st.floats(-1, 1), min_size=2, max_size=9))
def test_the_verdict_is_antisymmetric(ratios: list[float], noise: list[float]) -> None:
    opposite = {Verdict.FAST: Verdict.SLOW, Verdict.SLOW: Verdict.FAST, Verdict.SAME: Verdict.SAME}
    there, back = judged(ratios, noise), judged([-ratio for ratio in ratios], noise)
    assert back.verdict is opposite[there.verdict]
