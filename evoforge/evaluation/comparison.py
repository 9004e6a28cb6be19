"""Two kernels against each other: FAST, SLOW or SAME."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum

from evoforge.evaluation.priority import measuring
from evoforge.evaluation.stand import Stand
from evoforge.evaluation.timing import t_quantile
from evoforge.evaluation.trial import Trial

__all__ = ["Comparison", "Verdict", "duel", "judged", "looked_at", "trimmed_interval"]

_LOOKS = (8, 16, 32)
_CONFIDENCE = 1 - 0.01 / len(_LOOKS)  # 99% over all looks together (Bonferroni)
_LEAST_MARGIN = math.log2(1.01)
_TRIMMED = 0.2  # of the pairs at either end: a storm that strikes one says nothing about the kernels


class Verdict(StrEnum):
    """What is claimed of a first kernel beside a second one."""

    FAST = "FAST"
    SLOW = "SLOW"
    SAME = "SAME"


@dataclass(frozen=True)
class Comparison:
    """`ratio` is how many times faster the first is; `low` and `high` bound it.

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

    FAST where the two-sided 99.7% interval of the trimmed mean lies above the margin, SLOW where it
    lies below its inverse. The margin is the 95% half-width of `noise`, at least 1%.
    """
    middle, half = trimmed_interval(ratios, _CONFIDENCE)
    margin = max(trimmed_interval(noise, 0.95)[1], _LEAST_MARGIN)
    verdict = Verdict.SAME
    if middle - half > margin:
        verdict = Verdict.FAST
    elif middle + half < -margin:
        verdict = Verdict.SLOW
    return Comparison(verdict, 2**middle, 2 ** (middle - half), 2 ** (middle + half), 2**margin)


def looked_at(pair: Callable[[], tuple[float, float]]) -> Comparison:
    """The verdict on as many of `pair` as it takes: looked at after 8, 16 and 32.

    What can be told apart ends it, and so does an interval within twice the margin around nothing:
    giving up early makes nothing FAST. (A group-sequential design; Bonferroni's correction is the simple,
    conservative one.)

    Args:
        pair: (log2 ratio, log2 noise) of another pair of fresh processes.
    """
    rows: list[tuple[float, float]] = []
    for look in _LOOKS:
        while len(rows) < look:
            rows.append(pair())
        found = judged(*zip(*rows, strict=True))
        near = found.low > found.margin**-2 and found.high < found.margin**2 and found.low < 1 < found.high
        if found.verdict is not Verdict.SAME or near:
            break
    return found


def trimmed_interval(values: Sequence[float], confidence: float) -> tuple[float, float]:
    """(mean without a fifth at either end, half the width of its two-sided interval); two values at least.

    Yuen's interval: the winsorised deviation, Student's t over what is left (Yuen 1974).
    """
    ordered, cut = sorted(values), int(_TRIMMED * len(values))
    left = len(ordered) - 2 * cut
    inner = ordered[cut : cut + left]
    winsorised = [inner[0]] * cut + inner + [inner[-1]] * cut
    error = statistics.stdev(winsorised) * math.sqrt(len(ordered) - 1) / math.sqrt(left * (left - 1))
    return statistics.fmean(inner), t_quantile(left - 1, confidence) * error


def duel(stand: Stand, first: Trial, second: Trial, blocks: int) -> tuple[float, float]:
    """(log2(second / first), log2 of the noise) from one fresh process of each, both verified before.

    Every block has two batches of each, in random order; medians over the blocks, means over the
    workloads. The noise is the first of a pair of batches over the second, averaged over both kernels.

    Raises:
        KernelFault: one of them failed.
    """
    ratios, noise, watched = [], [], []
    with measuring(stand.target), ExitStack() as stack:
        for name in stand.materials:
            order = stand.rng.permutation(2)
            made = {int(one): (first, second)[one].watch(stack, name) for one in order}
            logs: list[list[tuple[float, float]]] = [[], []]
            for _ in range(blocks):
                times: list[list[float]] = [[], []]
                for one in map(int, stand.rng.permutation([0, 0, 1, 1])):
                    times[one].append(math.log2(made[one].batch_ms()))
                for one in (0, 1):
                    logs[one].append((times[one][0], times[one][1]))
            watched.append(made)
            pairs = list(zip(*logs, strict=True))
            ratios.append(statistics.median(statistics.fmean(b) - statistics.fmean(a) for a, b in pairs))
            noise.append(statistics.median((a[0] - a[1] + b[0] - b[1]) / 2 for a, b in pairs))
        for one, trial in enumerate((first, second)):
            trial.briefs.add(made[one] for made in watched)
    return statistics.fmean(ratios), statistics.fmean(noise)
