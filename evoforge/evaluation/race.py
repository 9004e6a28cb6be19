"""A race: kernels take turns in fresh processes, and who is surely slower than the fastest drops out."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from evoforge.core import Evaluation, Status
from evoforge.evaluation.comparison import trimmed_interval
from evoforge.evaluation.trial import Trial

__all__ = ["race"]

_LAP = 4  # rounds from one look at who is behind to the next
_ROUNDS = 32
_BLOCKS = 2
_SURE = 0.9  # of the two-sided interval: behind with 95%


def race(trials: Sequence[Trial], rng: np.random.Generator, *, limit_s: float) -> list[Evaluation]:
    """The verdicts, in the order of `trials`, on kernels that were right before.

    A round is one fresh process of each, in random order, timed beside nothing: what the machine does for seconds
    meets them alike, and rounds are numbered as processes are. After every four rounds those drop out whose times are
    above the fastest one's beyond doubt, round by round (a racing algorithm: Maron & Moore 1994, Birattari et al.
    2002). It ends when one is left, after 32 rounds, or with the round in which `limit_s` is up.
    """
    began = time.monotonic()
    verdicts: dict[int, Evaluation] = {}
    running: list[int] = []
    for at, trial in enumerate(trials):
        if failed := trial.attempt(trial.prove):
            verdicts[at] = failed
        else:
            running.append(at)
    out: dict[int, int] = {}  # who is through, and after how many rounds
    for number in range(_ROUNDS):
        for at in rng.permutation(running).tolist():
            if failed := trials[at].attempt(partial(trials[at].sample, number, _BLOCKS, ())):
                verdicts[at] = failed
        running = [at for at in running if at not in verdicts]
        lap, over = (number + 1) % _LAP == 0, number + 1 == _ROUNDS or time.monotonic() - began > limit_s
        behind = _behind({at: trials[at].verdict(Status.CORRECT).log2_ms() for at in running}) if lap else []
        ends = over or len(running) - len(behind) < 2
        out |= dict.fromkeys(running if ends else behind, number + 1)
        running = [at for at in running if at not in out]
        if ends:
            break
    for at, rounds in out.items():
        verdicts[at] = _in_rounds(trials[at].attempt(trials[at].conclude), rounds)
    return [verdicts[at] for at in range(len(trials))]


def _in_rounds(verdict: Evaluation, rounds: int) -> Evaluation:
    """Without the processes that were asked after the race, of a kernel that was doubted; they had no rivals."""
    if verdict.status is not Status.CORRECT:
        return verdict
    timings = [
        replace(timing, blocks=tuple(block for block in timing.blocks if block.process < rounds))
        for timing in verdict.timings
    ]
    if all(timing.blocks for timing in timings):
        return replace(verdict, timings=tuple(timings))
    return replace(verdict, status=Status.UNMEASURED, reason="doubted, and measured anew after the race", timings=())


def _behind(times: dict[int, dict[int, float]]) -> list[int]:
    """Who is surely slower than the fastest, by the differences of log2 times in rounds that both ran."""
    if not times:
        return []
    rounds = set.intersection(*(set(row) for row in times.values()))
    fastest = min(times, key=lambda at: statistics.fmean(times[at][number] for number in rounds))
    behind = []
    for at, row in times.items():
        middle, half = trimmed_interval([row[number] - times[fastest][number] for number in rounds], _SURE)
        if at != fastest and middle > half:
            behind.append(at)
    return behind
