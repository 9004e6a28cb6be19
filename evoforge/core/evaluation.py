"""An immutable verdict on (candidate, parameter values, task, target)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Literal

__all__ = [
    "AXES",
    "LEAST_OBJECTIVE",
    "PROTOCOL_VERSION",
    "SIDES",
    "Block",
    "Cell",
    "Evaluation",
    "Kind",
    "Status",
    "WorkloadTiming",
]

PROTOCOL_VERSION = 2
"""Raised whenever a change to judging makes old and new measurements incomparable."""

AXES = ("tiling", "memory", "fusion")
"""What a cell's levels are of, in this order."""

LEAST_OBJECTIVE = -5.0
"""What is slower, in log2, is as good as nothing: so much counts, and an empty cell of the QD score."""

Cell = tuple[int, ...]


class Status(StrEnum):
    """The closed list of ways an evaluation can end (docs/reference.md)."""

    CORRECT = "CORRECT"
    DUPLICATE = "DUPLICATE"
    INFEASIBLE = "INFEASIBLE"
    PRUNED = "PRUNED"
    SCREENED = "SCREENED"
    BUILD_ERROR = "BUILD_ERROR"
    BUILD_TIMEOUT = "BUILD_TIMEOUT"
    LOAD_ERROR = "LOAD_ERROR"
    UNSUPPORTED = "UNSUPPORTED"
    WRONG = "WRONG"
    OUT_OF_BOUNDS = "OUT_OF_BOUNDS"
    CRASH = "CRASH"
    TIMEOUT = "TIMEOUT"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    VIOLATION = "VIOLATION"
    TIMING_SUSPECT = "TIMING_SUSPECT"
    QUARANTINED = "QUARANTINED"
    UNMEASURED = "UNMEASURED"
    HARNESS_ERROR = "HARNESS_ERROR"

    @property
    def charged(self) -> bool:
        """Whether it costs one unit of the evaluation budget."""
        return self not in (Status.DUPLICATE, Status.INFEASIBLE, Status.SCREENED, Status.HARNESS_ERROR)

    @property
    def correct(self) -> bool:
        """Whether the kernel computed the right thing (PRUNED stopped a right kernel early)."""
        return self in (Status.CORRECT, Status.PRUNED, Status.QUARANTINED, Status.UNMEASURED)


class Kind(StrEnum):
    """Why it was measured: a budgeted trial, a confirmation, a race among the best, or a later bench."""

    TRIAL = "trial"
    CONFIRM = "confirm"
    RACE = "race"
    BENCH = "bench"


SIDES = ("eager", "compiled", "frozen")
"""What a kernel is timed beside: PyTorch as it stands; torch.compile; and, for kernels that pack weights
before the clock runs, torch.compile with Inductor's `freezing`, which does so too."""


@dataclass(frozen=True)
class Block:
    """One paired measurement: candidate and baselines timed next to each other, in random order.

    Times are milliseconds per call. `process` numbers the fresh runner process it came from. A side's
    time is None where it was not part of the block.
    """

    process: int
    candidate_ms: float
    eager_ms: float | None = None
    compiled_ms: float | None = None
    frozen_ms: float | None = None

    @classmethod
    def of(cls, process: int, times_ms: Mapping[str, float]) -> Block:
        """From milliseconds by name: ``candidate`` and any of `SIDES`."""
        return cls(process, times_ms["candidate"], *map(times_ms.get, SIDES))

    def baseline_ms(self, baseline: str) -> float | None:
        """The time of one of `SIDES`."""
        return (self.eager_ms, self.compiled_ms, self.frozen_ms)[SIDES.index(baseline)]


@dataclass(frozen=True)
class WorkloadTiming:
    """All blocks of one workload. `baseline` is the side that ratios are taken to: the campaign's choice for
    it, eager or compiled; for a prepacked kernel frozen, where that is faster.

    `blocks` are warm, and what every claim rests on. `hot` and `cold` are information beside them; empty
    where that was not measured.
    """

    workload: str
    baseline: str
    blocks: tuple[Block, ...]
    bound_ms: float | None = None
    hot: tuple[Block, ...] = ()
    cold: tuple[Block, ...] = ()

    @property
    def latency_ms(self) -> float:
        return statistics.median(block.candidate_ms for block in self.blocks)

    def speedup(self, side: str | None = None) -> float | None:
        """2 ** median of the paired log2 ratios side / candidate; None if that side was not timed."""
        ratios = self.log2_ratios(side)
        return 2.0 ** statistics.median(r for _, r in ratios) if ratios else None

    def log2_ratios(self, side: str | None = None) -> list[tuple[int, float]]:
        """(process, log2(side / candidate)) per block that timed `side` (default: the baseline)."""
        pairs = []
        for block in self.blocks:
            other = block.baseline_ms(side or self.baseline)
            if other is not None:
                pairs.append((block.process, math.log2(other / block.candidate_ms)))
        return pairs


@dataclass(frozen=True)
class Evaluation:
    """A verdict: status, raw facts and raw timings, never an opinion.

    CORRECT, PRUNED and QUARANTINED evaluations carry timings; all others carry none (invariant).
    `facts` are the descriptor's raw facts, of a race who ran (`evoforge.archives.racers`); `cell` is what the
    campaign's frozen descriptor made of them (None: unresolved or not described). `seconds` maps a stage
    (build, verify, time, facts) to what it took.
    """

    candidate: str
    params: Mapping[str, int]
    task: str
    target: str
    status: Status
    kind: Kind = Kind.TRIAL
    reason: str = ""
    timings: tuple[WorkloadTiming, ...] = ()
    max_error: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    cell: Cell | None = None
    flags: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    protocol: int = PROTOCOL_VERSION
    sandbox: str = "none"

    def __post_init__(self) -> None:
        timed = self.status in (Status.CORRECT, Status.PRUNED, Status.QUARANTINED)
        if timed != bool(self.timings):
            raise ValueError(f"an evaluation with status {self.status} must {'' if timed else 'not '}carry timings")

    @property
    def latency_ms(self) -> float | None:
        """Geometric mean over workloads of the median latency."""
        if not self.timings:
            return None
        return statistics.geometric_mean(timing.latency_ms for timing in self.timings)

    def speedup(self, side: str | None = None) -> float | None:
        """Geometric mean over workloads of side / candidate; None side: the campaign's baseline."""
        values = [timing.speedup(side) for timing in self.timings]
        known = [value for value in values if value is not None]
        return statistics.geometric_mean(known) if known and len(known) == len(values) else None

    @property
    def speedup_best_baseline(self) -> float | None:
        """Geometric mean over workloads of the faster side's time over the candidate's."""
        fastest = []
        for timing in self.timings:
            sides = [value for side in SIDES if (value := timing.speedup(side)) is not None]
            if not sides:
                return None
            fastest.append(min(sides))
        return statistics.geometric_mean(fastest) if fastest else None

    def against_fastest(self) -> Evaluation:
        """The same measurement, its ratios taken to the fastest side that each workload was timed beside."""
        timings = []
        for timing in self.timings:
            sides = {side: timing.speedup(side) for side in SIDES}
            timed = {side: value for side, value in sides.items() if value is not None}
            timings.append(replace(timing, baseline=min(timed, key=timed.__getitem__)) if timed else timing)
        return replace(self, timings=tuple(timings))

    def at(self, heat: Literal["hot", "cold"]) -> Evaluation | None:
        """The same measurement with its hot or its cold blocks in place of the warm ones.

        None where a workload has none.
        """
        timings = [replace(timing, blocks=getattr(timing, heat)) for timing in self.timings]
        if not timings or not all(timing.blocks for timing in timings):
            return None
        return replace(self, timings=tuple(timings))

    def log2_ms(self) -> dict[int, float]:
        """log2 of the milliseconds of a call, by process: medians over its blocks, then the mean over workloads.

        A process that did not time every workload is left out.
        """
        samples: dict[int, list[float]] = {}
        for timing in self.timings:
            times: dict[int, list[float]] = {}
            for block in timing.blocks:
                times.setdefault(block.process, []).append(math.log2(block.candidate_ms))
            for process, values in times.items():
                samples.setdefault(process, []).append(statistics.median(values))
        return {at: statistics.fmean(row) for at, row in samples.items() if len(row) == len(self.timings)}

    @cached_property  # asked for over and over
    def objective(self) -> float | None:
        """max(log2 of the geometric-mean speed-up over the baseline, `LEAST_OBJECTIVE`)."""
        value = self.speedup()
        return None if value is None else max(math.log2(value), LEAST_OBJECTIVE)

    @property
    def height(self) -> float:
        """The objective; `LEAST_OBJECTIVE` where there is none."""
        return LEAST_OBJECTIVE if self.objective is None else self.objective

    @property
    def roofline_fraction(self) -> float | None:
        """Geometric mean of bound / latency; None where no bound is known."""
        if not self.timings or any(timing.bound_ms is None for timing in self.timings):
            return None
        return statistics.geometric_mean(
            max(timing.bound_ms or 0.0, 1e-12) / timing.latency_ms for timing in self.timings
        )
