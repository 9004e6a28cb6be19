"""The archive's numbers, against their definitions."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoforge.archives import QD_OFFSET, coverage, qd_auc, qd_score
from evoforge.errors import UsageError


def test_qd_score_is_the_sum_above_the_offset() -> None:
    assert qd_score([]) == 0.0
    assert qd_score([-5.0]) == 0.0
    assert qd_score([1.0, -2.0]) == 6.0 + 3.0
    assert qd_score([1.0, 2.0], offset=0.0) == 3.0


def test_an_objective_below_the_offset_counts_as_the_offset() -> None:
    assert qd_score([-9.0, 1.0]) == 6.0


@given(st.lists(st.floats(-20, 20)), st.floats(-20, 20))
def test_a_new_cell_never_lowers_the_qd_score(objectives: list[float], new: float) -> None:
    assert qd_score([*objectives, new]) >= qd_score(objectives)


@given(st.lists(st.floats(-5, 5), max_size=64), st.randoms(use_true_random=False))
def test_qd_score_does_not_depend_on_the_order(objectives: list[float], random: object) -> None:
    shuffled = list(objectives)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert qd_score(shuffled) == qd_score(objectives)


def test_coverage() -> None:
    assert coverage(0, 0) == 0.0
    assert coverage(3, 12) == 0.25
    with pytest.raises(UsageError, match="between 0 and 2"):
        coverage(3, 2)


def test_qd_auc_sums_every_evaluations_score() -> None:
    assert qd_auc([]) == 0.0
    assert qd_auc([(1, 2.0), (2, 5.0), (3, 5.0)]) == 12.0


def test_qd_auc_weighs_a_batch_by_its_evaluations() -> None:
    assert qd_auc([(10, 2.0), (30, 3.0)]) == 10 * 2.0 + 20 * 3.0
    assert qd_auc([(10, 2.0), (10, 4.0), (20, 4.0)]) == 10 * 2.0 + 10 * 4.0


@given(st.lists(st.floats(0, 300), min_size=1, max_size=50))
def test_qd_auc_of_single_evaluations_is_the_plain_sum(scores: list[float]) -> None:
    assert qd_auc(list(enumerate(scores, 1))) == math.fsum(scores)


def test_qd_auc_refuses_counts_that_fall() -> None:
    with pytest.raises(UsageError, match="never fall, got 3 after 4"):
        qd_auc([(4, 1.0), (3, 1.0)])
    with pytest.raises(UsageError, match="got -1 after 0"):
        qd_auc([(-1, 1.0)])


def test_the_offset_is_the_least_objective() -> None:
    assert QD_OFFSET == -5.0
