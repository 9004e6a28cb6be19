from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from evoforge.tuning import wilcoxon_prunes
from evoforge.tuning.pruning import signed_rank_p


def test_four_blocks_all_below_are_enough_and_three_are_not() -> None:
    assert wilcoxon_prunes([0.1, 0.2, 0.15, 0.12], 0.5)
    assert not wilcoxon_prunes([0.1, 0.2, 0.15], 0.5)
    assert not wilcoxon_prunes([0.1, 0.2, 0.15, 0.9], 0.5)
    assert not wilcoxon_prunes([0.6, 0.7, 0.8, 0.9], 0.5)
    assert not wilcoxon_prunes([0.5] * 8, 0.5)


def test_the_best_may_be_given_block_by_block() -> None:
    assert wilcoxon_prunes([0.1, 0.4, 0.2, 0.3, 0.1], [0.2, 0.6, 0.3, 0.7, 0.15])
    assert not wilcoxon_prunes([0.1, 0.4, 0.2, 0.3], [0.2, 0.6, 0.3])
    assert not wilcoxon_prunes([0.1, 0.4, 0.2, 0.3], [0.0, 0.6, 0.1, 0.7])


@pytest.mark.parametrize("seed", range(5))
def test_the_exact_test_agrees_with_scipy(seed: int) -> None:
    values = np.random.default_rng(seed).normal(-0.2, 1.0, size=11)
    expected = scipy.stats.wilcoxon(values, alternative="less", method="exact").pvalue
    assert signed_rank_p(values.tolist()) == pytest.approx(expected)


def test_ties_and_zeros() -> None:
    assert signed_rank_p([]) == 1.0
    assert signed_rank_p([0.0, 0.0]) == 1.0
    assert signed_rank_p([-1.0, -1.0, -1.0, -1.0, 0.0]) == 1 / 16
    # Ranks 2, 2, 2, 4: of the 16 sign patterns 4 have a positive rank sum of at most 2.
    assert signed_rank_p([1.0, -1.0, -1.0, -2.0]) == 4 / 16


def test_a_kernel_as_good_as_the_best_is_rarely_pruned() -> None:
    rng = np.random.default_rng(0)
    pruned = sum(wilcoxon_prunes(rng.normal(0, 0.05, size=8).tolist(), 0.0) for _ in range(500))
    assert pruned < 0.13 * 500
    assert all(wilcoxon_prunes(rng.normal(-0.3, 0.05, size=8).tolist(), 0.0) for _ in range(100))


@given(st.lists(st.floats(-5, 5), max_size=30))
def test_p_is_a_probability_and_falls_when_everything_falls(values: list[float]) -> None:
    p = signed_rank_p(values)
    assert 0 <= p <= 1
    assert signed_rank_p([-abs(value) for value in values]) <= p
