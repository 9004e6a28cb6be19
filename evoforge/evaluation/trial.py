"""One evaluation under way: build, verify, time, describe; and the verdict that follows."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from evoforge.core import Block, Candidate, Evaluation, Kind, Params, Signature, Status, Target, Task, WorkloadTiming
from evoforge.errors import EvoforgeError, ParameterError, WorkerError
from evoforge.evaluation.baselines import SIDES, Baselines
from evoforge.evaluation.build import Builder, Built
from evoforge.evaluation.busy import BusyClock
from evoforge.evaluation.material import Known, Material
from evoforge.evaluation.runner import KernelFault, Runner
from evoforge.evaluation.shared import SharedTensors
from evoforge.evaluation.targets import device_lock
from evoforge.evaluation.timing import PAUSE_S, Stopwatch, paired_block, significantly_below
from evoforge.evaluation.verify import SampledBatches, WrongOutput, verify

__all__ = ["Stand", "Trial", "build_all", "describe"]

_BEYOND_BOUND = 1.15
_HOPELESS_LOG2 = 3.0
_LIMIT_FACTOR = 100.0
_MAX_LIMIT_S = 120.0
_TRIAL_TIMING_S = 8.0


@dataclass
class Stand:
    """What all trials of one judge share.

    `baseline` names a side per workload, `bounds_ms` the physical bound of its latency, `traces` the
    shrunken signature on which facts are traced, `unfused` the tensor-sized intermediates of the task
    when nothing is fused. `unseen` gives a secret set of a workload that no trial has met.
    """

    task: Task
    target: Target
    sandbox: str
    threads: int
    builder: Builder
    baselines: Baselines
    busy: BusyClock
    rng: np.random.Generator
    unseen: Callable[[str], Known]
    call_limit_s: float
    materials: dict[str, Material] = field(default_factory=dict)
    baseline: dict[str, str] = field(default_factory=dict)
    bounds_ms: dict[str, float | None] = field(default_factory=dict)
    traces: dict[str, Signature | None] = field(default_factory=dict)
    unfused: int | None = None

    def limit_s(self, material: Material) -> float:
        """How long one call may take."""
        return min(max(self.call_limit_s, _LIMIT_FACTOR * material.eager_s), _MAX_LIMIT_S)

    def runner(self, built: Built, material: Material, sets: Sequence[SharedTensors]) -> Runner:
        """A fresh process with this kernel."""
        assert built.library_path is not None
        signature = material.signature
        room = max(1 << 30, 4 * (signature.input_bytes + signature.constant_bytes + signature.output_bytes))
        return Runner(
            built.library_path, signature, constants=material.constants, sets=sets, outputs=material.outputs,
            threads=self.threads, sandbox=self.sandbox, memory_bytes=room, busy=self.busy,
            timeout_s=10.0 + self.limit_s(material),
        )  # fmt: skip


def build_all(stand: Stand, candidate: Candidate, values: Params) -> dict[str, Built]:
    """The candidate built for every workload, from the cache where it is there; thread-safe."""
    return {
        name: stand.builder.build(candidate.source, values, material.signature)
        for name, material in stand.materials.items()
    }


def describe(stand: Stand, candidate: Candidate, values: Params, built: Mapping[str, Built]) -> dict[str, Any]:
    """The descriptor's facts on the first workload, from the cache where they are there; thread-safe."""
    from evoforge.evaluation.facts import collect_facts

    name = next(iter(built))
    with stand.busy.working():
        return collect_facts(
            candidate.source, values, built[name], stand.materials[name].signature,
            stand.traces.get(name), stand.target, stand.builder, unfused=stand.unfused,
        )  # fmt: skip


class Trial:
    """One candidate at one parameter choice. Every way in which a kernel can fail becomes a status.

    Args:
        params: overlay the candidate's defaults.
    """

    def __init__(self, stand: Stand, candidate: Candidate, params: Params, kind: Kind) -> None:
        self._stand = stand
        self._candidate = candidate
        self._params: dict[str, int] = dict(params)
        self._kind = kind
        self._seconds: dict[str, float] = {}
        self._flags: set[str] = set()
        self._facts: Mapping[str, Any] = {}
        self._max_error: float | None = None
        self._level = stand.sandbox
        self._built: dict[str, Built] = {}
        self._rows: dict[str, list[Block]] = {name: [] for name in stand.materials}

    def run(self, measure: Callable[[Trial], Evaluation], *, unseen: bool = False) -> Evaluation:
        """Builds, verifies and goes on with `measure`.

        Args:
            unseen: verify on a new secret set too, and the first set three times.
        """
        stand = self._stand
        try:
            self._params = {**self._candidate.space.defaults(), **self._params}
            if not self._candidate.space.feasible(self._params):
                return self.verdict(Status.INFEASIBLE, "the values break the kernel's own declarations")
        except ParameterError as error:
            return self.verdict(Status.INFEASIBLE, str(error))
        try:
            with self._stage("build"):
                self._built = build_all(stand, self._candidate, self._params)
            for built in self._built.values():
                if built.status is not Status.CORRECT:
                    return self.verdict(built.status, built.reason)
            with self._stage("verify"):
                self._verify(unseen)
            return measure(self)
        except WrongOutput as wrong:
            self._max_error = max(self._max_error or 0.0, wrong.max_error)
            return self.verdict(wrong.status, wrong.reason)
        except KernelFault as fault:
            return self.verdict(fault.status, fault.reason)
        except WorkerError as error:
            stand.baselines.revive()
            return self.verdict(Status.HARNESS_ERROR, str(error))

    def quick(self, blocks: int, prune_below: float | None, wanted_facts: bool) -> Evaluation:
        """Paired blocks in one process against the baseline, then facts (see `Judge.trial`)."""
        pruned = False
        with self._stage("time"), device_lock(self._stand.target), ExitStack() as stack:
            began = time.perf_counter()
            watches = self._watches(stack, {name: [self._stand.baseline[name]] for name in self._built})
            last: dict[str, str | None] = dict.fromkeys(self._built)
            for _ in range(blocks):
                self._block(watches, last, process=0)
                pruned = prune_below is not None and self._is_below(prune_below)
                if pruned or time.perf_counter() - began > _TRIAL_TIMING_S:
                    break
            suspect = "" if pruned else self._disagreement(watches)
        if suspect:
            return self.verdict(Status.TIMING_SUSPECT, suspect)
        if pruned:
            return self.verdict(Status.PRUNED, "significantly slower than what it must beat")
        return self._judged(wanted_facts)

    def thorough(self, processes: int, blocks: int, sides: Sequence[str]) -> Evaluation:
        """Blocks of their own in each of several fresh processes (see `Judge.confirm`).

        That twice the calls take twice the time is checked in one of them, which one being secret.
        """
        doubted = int(self._stand.rng.integers(processes))
        for process in range(processes):
            with self._stage("time"), device_lock(self._stand.target), ExitStack() as stack:
                watches = self._watches(stack, {name: self._sides(name, sides) for name in self._built})
                last: dict[str, str | None] = dict.fromkeys(self._built)
                for _ in range(blocks):
                    self._block(watches, last, process)
                suspect = self._disagreement(watches) if process == doubted else ""
            if suspect:
                return self.verdict(Status.TIMING_SUSPECT, suspect)
        return self._judged(False)

    def verdict(self, status: Status, reason: str = "") -> Evaluation:
        """The evaluation as it stands; timings go with the statuses that carry them."""
        stand = self._stand
        timed = status in (Status.CORRECT, Status.PRUNED, Status.QUARANTINED)
        timings = tuple(
            WorkloadTiming(name, stand.baseline[name], tuple(rows), stand.bounds_ms.get(name))
            for name, rows in self._rows.items()
        )
        return Evaluation(
            candidate=self._candidate.id, params=self._params, task=stand.task.id, target=stand.target.id,
            status=status, kind=self._kind, reason=reason, timings=timings if timed else (),
            max_error=self._max_error, facts=self._facts, flags=tuple(sorted(self._flags)),
            seconds=dict(self._seconds), sandbox=self._level,
        )  # fmt: skip

    def _verify(self, unseen: bool) -> None:
        stand = self._stand
        for name, built in self._built.items():
            material = stand.materials[name]
            known = [*material.pool, *([stand.unseen(name)] if unseen else [])]
            with stand.runner(built, material, [item.inputs for item in known]) as runner:
                self._level = runner.sandbox_level
                if runner.info.packed_bytes:
                    self._flags.add("prepacked")
                limit_s, repeats = stand.limit_s(material), 3 if unseen else 2
                found = verify(runner, known, material.outputs, stand.task.tolerance, limit_s=limit_s, repeats=repeats)
            self._max_error = max(self._max_error or 0.0, found.max_error)
            if not found.deterministic:
                self._flags.add("nondeterministic")

    def _sides(self, name: str, sides: Sequence[str]) -> list[str]:
        wanted = {self._stand.baseline[name] if side == "baseline" else side for side in sides}
        return [side for side in SIDES if side in wanted and self._stand.baselines.has(side)]

    def _watches(self, stack: ExitStack, sides: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Stopwatch]]:
        """Per workload a fresh runner's stopwatch, and those of the baselines, all calibrated."""
        stand = self._stand
        watches: dict[str, dict[str, Stopwatch]] = {}
        for name, built in self._built.items():
            material = stand.materials[name]
            watches[name] = {side: stand.baselines.stopwatch(side, name) for side in sides[name]}
            time.sleep(PAUSE_S)
            runner = stack.enter_context(stand.runner(built, material, material.ring))
            batches = SampledBatches(runner, material, stand.task.tolerance, stand.rng, limit_s=stand.limit_s(material))
            watches[name]["candidate"] = Stopwatch(batches, stand.rng)
            watches[name]["candidate"].calibrate()
        return watches

    def _block(self, watches: Mapping[str, Mapping[str, Stopwatch]], last: dict[str, str | None], process: int) -> None:
        for name, sides in watches.items():
            before = last[name] if len(watches) == 1 else None
            times, last[name] = paired_block(sides, self._stand.rng, before)
            block = Block(process, times["candidate"], times.get("eager"), times.get("compiled"))
            self._rows[name].append(block)

    def _disagreement(self, watches: Mapping[str, Mapping[str, Stopwatch]]) -> str:
        """Why the times cannot be believed; empty when they can."""
        time.sleep(PAUSE_S)
        for name, sides in watches.items():
            if not sides["candidate"].agrees():
                return f"workload {name}: twice the calls do not take twice the time"
        return ""

    def _is_below(self, threshold: float) -> bool:
        """Whether the blocks' mean log2 ratios over the workloads are below `threshold` beyond doubt."""
        baseline = self._stand.baseline
        per_workload = [
            [math.log2((row.baseline_ms(baseline[name]) or row.candidate_ms) / row.candidate_ms) for row in rows]
            for name, rows in self._rows.items()
        ]
        ratios = [statistics.fmean(column) for column in zip(*per_workload, strict=True)]
        return max(ratios) < threshold - _HOPELESS_LOG2 or significantly_below(ratios, threshold)

    def _judged(self, wanted_facts: bool) -> Evaluation:
        if wanted_facts:
            with self._stage("facts"):
                self._facts = self._collect()
        for name, rows in self._rows.items():
            bound = self._stand.bounds_ms.get(name)
            latency = statistics.median(row.candidate_ms for row in rows)
            if bound is not None and latency < bound / _BEYOND_BOUND:
                return self.verdict(
                    Status.QUARANTINED,
                    f"workload {name}: {latency:.4g} ms is faster than the physical bound of {bound:.4g} ms allows",
                )
        return self.verdict(Status.CORRECT)

    def _collect(self) -> Mapping[str, Any]:
        try:
            return describe(self._stand, self._candidate, self._params, self._built)
        except EvoforgeError as error:
            self._flags.add("undescribed")
            return {"error": str(error)}

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - began
