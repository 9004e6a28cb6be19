"""Two kernels against each other: FAST, SLOW or SAME."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from evoforge.evaluation.timing import t_half_width

__all__ = ["Comparison", "Verdict", "judged"]

_CONFIDENCE = 0.99
_LEAST_MARGIN = math.log2(1.01)


class Verdict(StrEnum):
    """What is claimed of a first kernel beside a second one."""

    FAST = "FAST"
    SLOW = "SLOW"
    SAME = "SAME"


@dataclass(frozen=True)
class Comparison:
    """`ratio` is how many times faster the first is; `low` and `high` bound it at 99%.

    `margin` is the ratio that a binary shows against itself here and now: what lies within it is
    noise, whatever the interval says.
    """

    verdict: Verdict
    ratio: float
    low: float
    high: float
    margin: float


def judged(ratios: Sequence[float], noise: Sequence[float]) -> Comparison:
    """The verdict on paired measurements.

    Args:
        ratios: log2(second / first) per pair of fresh processes, at least two.
        noise: as many log2 ratios of one of them against itself.

    FAST where the two-sided 99% Student-t interval of the mean lies above the margin, SLOW where it
    lies below its inverse. The margin is the 95% half-width of `noise`, at least 1%.
    """
    middle, half = statistics.fmean(ratios), t_half_width(ratios, _CONFIDENCE)
    margin = max(t_half_width(noise), _LEAST_MARGIN)
    verdict = Verdict.SAME
    if middle - half > margin:
        verdict = Verdict.FAST
    elif middle + half < -margin:
        verdict = Verdict.SLOW
    return Comparison(verdict, 2**middle, 2 ** (middle - half), 2 ** (middle + half), 2**margin)
