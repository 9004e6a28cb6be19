"""Claims of kernels that were raced.

A confirmation says how much faster a kernel is than its baseline was in that minute. A machine whose baseline has two
speeds, by the minute, tells kernels apart by less than it moves them. A race tells them apart and says nothing about
the baseline: so the claims of all that ran keep their mean, and the race decides how far they stand from it.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from evoforge.core import Candidate, Elite, Evaluation, Kind, Params, Point, Status, point

__all__ = ["raced", "racers"]

_TRIMMED = 0.2  # of the rounds at either end: a storm that strikes one kernel's process says nothing about it


def racers(kernels: Iterable[tuple[Candidate, Params]]) -> Mapping[str, Any]:
    """The facts that every evaluation of one race carries: who ran."""
    return {"race": [[candidate.id, dict(sorted(params.items()))] for candidate, params in kernels]}


def raced(claims: Iterable[Elite], evaluations: Iterable[Evaluation]) -> list[Elite]:
    """The claims, in their order, those of the last race set apart as it measured them.

    With dᵢ ≥ 0 by how much (log2) kernel i was slower than the winner, a mean of differences round by round without a
    fifth at either end, and bars for means over all that ran, objective and bound of i become those of the mean claim
    plus d̄ − dᵢ. So where those of the highest bounds ran, the winner has the highest bound of all. Evaluations that are
    not CORRECT and kernels without a claim took no part; of fewer than two that did, nothing is said.

    Args:
        evaluations: in stored order, of any kind.
    """
    last: dict[Point, Evaluation] = {}
    facts: Mapping[str, Any] = {}
    for evaluation in evaluations:
        if evaluation.kind is Kind.RACE and evaluation.status is Status.CORRECT:
            at = point(evaluation.candidate, evaluation.params)
            if at in last or facts != evaluation.facts:  # another race, be it of the same kernels
                last.clear()
            last[at], facts = evaluation, evaluation.facts
    claims = list(claims)
    # Trimmed means of differences are no order: from whom they are taken must not hang on how claims came.
    ran = sorted(
        (claim for claim in claims if point(claim.candidate, claim.params) in last),
        key=lambda claim: (claim.candidate, sorted(claim.params.items())),
    )
    if len(ran) < 2:
        return claims
    slower = _slower([last[point(claim.candidate, claim.params)].log2_ms() for claim in ran])
    level = statistics.fmean(slower)
    objective = statistics.fmean(claim.objective for claim in ran) + level
    lower = statistics.fmean(claim.lower for claim in ran) + level
    apart = {
        point(claim.candidate, claim.params): replace(claim, objective=objective - behind, lower=lower - behind)
        for claim, behind in zip(ran, slower, strict=True)
    }
    return [apart.get(point(claim.candidate, claim.params), claim) for claim in claims]


def _slower(times: Sequence[Mapping[int, float]]) -> list[float]:
    """By how much each is slower than the fastest of those that ran to the end, at least 0."""
    longest = max(map(len, times))
    finalists = [row for row in times if len(row) == longest]
    winner = min(finalists, key=lambda row: _mean_gap(row, finalists[0]))
    return [max(_mean_gap(row, winner), 0.0) for row in times]


def _mean_gap(one: Mapping[int, float], other: Mapping[int, float]) -> float:
    gaps = sorted(one[number] - other[number] for number in one.keys() & other.keys())
    cut = int(_TRIMMED * len(gaps))
    return statistics.fmean(gaps[cut : len(gaps) - cut])
