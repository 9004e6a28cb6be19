"""The elite rule: from stored confirmations to elites.

An archive is a fold over confirmed evaluations. All samples of one (candidate, parameter values)
are pooled, whatever evaluation they came in, so measuring again sharpens a bound and never adds a
second chance to be lucky (cf. uncertain quality-diversity, arXiv 2302.00463).
"""

from __future__ import annotations

import functools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from evoforge.archives.racing import raced
from evoforge.archives.stats import QD_OFFSET
from evoforge.core import Cell, Elite, Evaluation, Kind, Point, Status, point
from evoforge.errors import UsageError

__all__ = [
    "CONFIDENCE",
    "DISQUALIFYING",
    "MIN_PROCESSES",
    "MIRRORED",
    "fold_confirmations",
    "lower_bound",
    "process_ratios",
    "speedup_interval",
]

MIN_PROCESSES = 5
"""Fewer fresh processes than this are no ground for a claim."""

CONFIDENCE = 0.95
"""Of the one-sided bound that ranks an elite, and of two-sided intervals."""
MIRRORED = 2 * CONFIDENCE - 1
"""Of the interval from an elite's one-sided bound to its mirror on the other side of the objective."""

DISQUALIFYING = frozenset(
    {
        Status.SCREENED,
        Status.UNSUPPORTED,
        Status.WRONG,
        Status.OUT_OF_BOUNDS,
        Status.CRASH,
        Status.TIMEOUT,
        Status.VIOLATION,
        Status.QUARANTINED,
    }
)
"""Ends that are the kernel's own doing: one of them, at any time, and it is no elite."""


def fold_confirmations(
    evaluations: Iterable[Evaluation],
    *,
    source_lengths: Mapping[str, int] | None = None,
    tickets: Mapping[str, int] | None = None,
    include_bench: bool = False,
) -> list[Elite]:
    """The elites-to-be of one (task, target): one per (candidate, parameter values) with a claim.

    A claim needs: CORRECT confirmations with at least `MIN_PROCESSES` fresh processes between them;
    a cell; no disqualifying end in any evaluation, trials included; and, since a suspect clock may
    be noise but may be a cheat, more CORRECT confirmations than TIMING_SUSPECT ones. The order of
    `evaluations` matters only where evaluations of the same (candidate, parameter values) disagree
    about the cell: the latest CORRECT one with a cell decides.

    Args:
        evaluations: In stored order, any statuses and kinds.
        source_lengths: Characters of each candidate's source, by candidate id (breaks ties).
        tickets: The ticket that first proposed each candidate (breaks ties).
        include_bench: Whether later bench measurements count as confirmations too. Their failures
            always count.

    Claims of kernels that were raced stand apart as the last race measured them (`raced`).

    Returns:
        Elites sorted by cell, candidate and parameter values; several may share a cell.

    Raises:
        UsageError: the evaluations mix tasks, targets or protocol versions.
    """
    evaluations = list(evaluations)
    measured = {Kind.CONFIRM, Kind.BENCH} if include_bench else {Kind.CONFIRM}
    described = measured | {Kind.TRIAL}
    groups: dict[Point, list[Evaluation]] = defaultdict(list)
    cells: dict[Point, Cell] = {}
    suspects: dict[Point, int] = defaultdict(int)
    out: set[Point] = set()
    subjects: set[tuple[str, str, int]] = set()
    for evaluation in evaluations:
        subjects.add((evaluation.task, evaluation.target, evaluation.protocol))
        group = point(evaluation.candidate, evaluation.params)
        if evaluation.status in DISQUALIFYING:
            out.add(group)
        elif evaluation.status is Status.TIMING_SUSPECT and evaluation.kind in measured:
            suspects[group] += 1
        elif evaluation.status is Status.CORRECT:
            if evaluation.kind in measured:
                groups[group].append(evaluation)
            if evaluation.kind in described and evaluation.cell is not None:
                cells[group] = evaluation.cell
    if len(subjects) > 1:
        raise UsageError(f"expected evaluations of one task, target and protocol version, got {len(subjects)} mixed")

    elites = []
    for group, confirmations in groups.items():
        ratios = process_ratios(confirmations)
        if group in out or group not in cells or suspects[group] >= len(confirmations) or len(ratios) < MIN_PROCESSES:
            continue
        candidate, params = group
        elites.append(
            Elite(
                candidate=candidate,
                params=dict(params),
                cell=cells[group],
                objective=max(statistics.median(ratios), QD_OFFSET),
                lower=lower_bound(ratios),
                source_length=(source_lengths or {}).get(candidate, 0),
                ticket=(tickets or {}).get(candidate, 0),
            )
        )
    elites = raced(elites, evaluations)
    return sorted(elites, key=lambda elite: (elite.cell, elite.candidate, sorted(elite.params.items())))


def process_ratios(confirmations: Sequence[Evaluation]) -> list[float]:
    """One log2 speed-up over the baseline per fresh process, in the order of the evaluations.

    Within a process the median over its blocks, per workload; then the mean over workloads, the
    log2 of a geometric mean. Process numbers are local to an evaluation. A process that did not
    time every workload against its baseline is left out.
    """
    workloads = {timing.workload for evaluation in confirmations for timing in evaluation.timings}
    ratios = []
    for evaluation in confirmations:
        samples: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for timing in evaluation.timings:
            for process, ratio in timing.log2_ratios():
                samples[process][timing.workload].append(ratio)
        complete = [samples[process] for process in sorted(samples) if samples[process].keys() == workloads]
        ratios += [statistics.fmean(statistics.median(blocks) for blocks in row.values()) for row in complete]
    return ratios


def lower_bound(ratios: Sequence[float]) -> float:
    """One-sided 95% Student-t bound below the mean of per-process ratios, never above their median.

    The median is the point estimate; with a skewed sample the bound of the mean could pass it.
    A percentile bootstrap would cover only 84% with five processes.

    Raises:
        UsageError: fewer than two ratios, from which no spread can be told.
    """
    if len(ratios) < 2:
        raise UsageError(f"expected the ratios of at least two processes, got {len(ratios)}; confirm once more")
    error = statistics.stdev(ratios) / math.sqrt(len(ratios))
    return min(statistics.fmean(ratios) - _t_quantile(len(ratios) - 1, CONFIDENCE) * error, statistics.median(ratios))


def speedup_interval(measured: Sequence[Evaluation]) -> tuple[float, float, float] | None:
    """(low, median, high) of the speed-up over the baseline, from per-process ratios.

    The two-sided 95% Student-t interval of the mean, widened to the median where that lies outside.
    None for fewer than two processes.
    """
    ratios = process_ratios(measured)
    if len(ratios) < 2:
        return None
    mean, middle = statistics.fmean(ratios), statistics.median(ratios)
    half = _t_quantile(len(ratios) - 1, 0.5 + CONFIDENCE / 2) * statistics.stdev(ratios) / math.sqrt(len(ratios))
    return 2 ** min(mean - half, middle), 2**middle, 2 ** max(mean + half, middle)


@functools.cache
def _t_quantile(degrees: int, confidence: float) -> float:
    from scipy.special import stdtrit  # 0.3 s to import, and only a fold needs it

    return float(stdtrit(degrees, confidence))
