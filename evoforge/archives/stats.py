"""The numbers that describe an archive, as pyribs and the quality-diversity literature define them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from evoforge.core import LEAST_OBJECTIVE
from evoforge.errors import UsageError

__all__ = ["QD_OFFSET", "coverage", "qd_auc", "qd_score"]

QD_OFFSET = LEAST_OBJECTIVE
"""What an empty cell counts: the least objective there is, so that a new cell never lowers the QD score."""


def qd_score(objectives: Iterable[float], offset: float = QD_OFFSET) -> float:
    """Sum over the elites of (objective − offset), objectives below the offset counting as it.

    Exactly rounded, so it does not depend on the order. Pugh et al. 2016, with pyribs' offset.
    """
    return math.fsum(max(objective, offset) - offset for objective in objectives)


def coverage(filled: int, reachable: int) -> float:
    """Filled cells as a share of the reachable ones, in [0, 1]; 0 where nothing is reachable.

    Raises:
        UsageError: more cells are filled than are reachable.
    """
    if not 0 <= filled <= reachable:
        raise UsageError(f"expected between 0 and {reachable} filled cells (the reachable ones), got {filled}")
    return filled / reachable if reachable else 0.0


def qd_auc(points: Sequence[tuple[int, float]]) -> float:
    """Area under the QD score over evaluations: Σ λᵢ · QDᵢ, λᵢ the evaluations of batch i.

    `points` holds (evaluations so far, QD score after them), one per batch, in order. Give a point
    for every batch and not only where the score changed: a batch's evaluations all count with the
    score at its end (Tjanaka et al. 2022, arXiv 2202.03666). One point per evaluation has no such
    rounding up.

    Raises:
        UsageError: the evaluation counts fall, or start below zero.
    """
    area, before = [], 0
    for evaluations, score in points:
        if evaluations < before:
            raise UsageError(f"expected evaluation counts that never fall, got {evaluations} after {before}")
        area.append((evaluations - before) * score)
        before = evaluations
    return math.fsum(area)
