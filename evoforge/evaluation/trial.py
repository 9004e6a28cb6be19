"""One evaluation under way: build, verify, time, describe; and the verdict that follows."""

from __future__ import annotations

import math
import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial
from typing import Any, TypeVar

from evoforge.core import SIDES, Block, Candidate, Evaluation, Kind, Params, Status, WorkloadTiming, printable
from evoforge.errors import EvoforgeError, ParameterError, WorkerError
from evoforge.evaluation.briefs import Briefs
from evoforge.evaluation.hotcold import SLOW_HOT, is_slow_hot, time_hot_and_cold
from evoforge.evaluation.material import STRANGERS
from evoforge.evaluation.priority import can_prioritise, measuring
from evoforge.evaluation.proof import Proof
from evoforge.evaluation.runner import KernelFault
from evoforge.evaluation.scatter import know_scatter
from evoforge.evaluation.stand import Stand, describe
from evoforge.evaluation.timing import Batches, Stopwatch, paired_block, significantly_below
from evoforge.evaluation.verify import FreshBatches, SampledBatches, WrongOutput

__all__ = ["Trial"]

_BEYOND_BOUND = 1.15
_HOPELESS_LOG2 = 2.0  # so far below what it must beat, one block is enough, or two verified calls
_NOBODY_CHEATS_LOG2 = -1.0  # a kernel that takes twice the baseline's time is not doubted
_TRIAL_TIMING_S = 2.0
_SHORT_S = 0.05
_FREEZING_S = 600.0
_PACKS = re.compile(rb"evo_prepare")
_STARTS_THREADS = re.compile(rb"GOMP_|pthread_create|thrd_create|_M_start_thread")  # OpenMP, POSIX, C11, std::thread
T = TypeVar("T")
Watches = dict[str, dict[str, Stopwatch]]
"""Per workload, the stopwatches of ``candidate`` and of the sides that it is timed beside."""


class Trial:
    """One candidate at one parameter choice: `prove`, then either `quick`, or `sample` many times and `conclude`.

    The steps raise what goes wrong; within `attempt` every way in which a kernel can fail becomes a status.

    Args:
        params: overlay the candidate's defaults.
    """

    def __init__(self, stand: Stand, candidate: Candidate, params: Params, kind: Kind) -> None:
        self._stand = stand
        self._candidate = candidate
        self._params: dict[str, int] = dict(params)
        self._kind = kind
        self._proof = Proof(stand, candidate)
        self._flags = self._proof.flags
        self._seconds: dict[str, float] = {}
        self._facts: Mapping[str, Any] = {}
        self._drifts: list[str] = []
        self._once_more: Callable[[bool], None] | None = None  # another process of a confirmation
        self._slow_to_start: set[str] = set()
        self._rows: dict[str, list[Block]] = {name: [] for name in stand.materials}
        self._hot: dict[str, tuple[Block, ...]] = {}
        self._cold: dict[str, tuple[Block, ...]] = {}

    def attempt(self, step: Callable[[], T]) -> T | Evaluation:
        """What the step returns; where the kernel fails in it, or the harness does, the verdict."""
        try:
            return step()
        except WrongOutput as wrong:
            self._proof.met(wrong.max_error)
            return self.verdict(wrong.status, wrong.reason)
        except KernelFault as fault:
            return self.verdict(fault.status, fault.reason)
        except WorkerError as error:
            self._stand.baselines.revive()
            return self.verdict(Status.HARNESS_ERROR, str(error))

    def prove(
        self, *, unseen: bool = False, sanitized: bool = False, prune_below: float | None = None
    ) -> Evaluation | None:
        """Builds and verifies; None where the kernel is right and may be timed.

        Args:
            unseen: verify on a secret set that no trial meets, three times over, and on extremes.
            sanitized: call it once under the sanitizers too.
            prune_below: log2 speed-up; a right call far below it ends the trial PRUNED.
        """
        try:
            self._params = {**self._candidate.space.defaults(), **self._params}
            if not self._candidate.space.feasible(self._params):
                return self.verdict(Status.INFEASIBLE, "the values break the kernel's own declarations")
        except ParameterError as error:
            return self.verdict(Status.INFEASIBLE, str(error))
        stand, proof = self._stand, self._proof
        with self._stage("build"):
            failed = proof.build(self._params)
        if failed:
            return self.verdict(failed.status, failed.reason)
        if self._contains(_PACKS):
            self._flags.add("prepacked")
        limits_s = {name: self._hopeless_s(name, prune_below) for name in proof.built}
        with self._stage("verify"):
            cut_short = proof.verify(limits_s, unseen=unseen)
        if cut_short:
            name, seconds = cut_short
            side = stand.baseline[name]
            other_ms = stand.baselines.stopwatch(side, name).call_s * 1e3
            self._rows = {name: [Block(0, seconds * 1e3, **{f"{side}_ms": other_ms})]}
            return self.verdict(Status.PRUNED, "its first right calls are far slower than what it must beat")
        if sanitized:
            with self._stage("sanitize"):
                proof.sanitize()
        return None

    def quick(self, blocks: int, prune_below: float | None, wanted_facts: bool) -> Evaluation:
        """Paired blocks in one process against the baseline, then facts (see `Judge.trial`)."""
        pruned = False
        sides = {name: (self._stand.baseline[name], *self._freezing) for name in self._proof.built}
        with self._stage("time"), measuring(self._stand.target), ExitStack() as stack:
            began = time.perf_counter()
            watches = self._watches(stack, sides)
            for _ in range(blocks):
                self._block(watches, process=0)
                pruned = prune_below is not None and self._is_below(prune_below)
                if pruned or time.perf_counter() - began > _TRIAL_TIMING_S:
                    break
            doubted = not pruned and max(self._ratios()) > _NOBODY_CHEATS_LOG2
            self._book([one["candidate"] for one in watches.values()], doubted)
        if doubted and (suspect := self._drifting() or self.skipped()):
            return self.verdict(Status.TIMING_SUSPECT, suspect)
        if pruned:
            return self.verdict(Status.PRUNED, "significantly slower than what it must beat")
        return self._judged(wanted_facts)

    def sample(self, process: int, blocks: int, sides: Sequence[str], doubted: bool = True) -> None:
        """Blocks of their own in a fresh process, the one numbered `process`.

        Args:
            doubted: whether twice the calls take twice the time is asked, too.
        """
        besides = {name: self._sides(name, sides) for name in self._proof.built}
        with self._stage("time"), measuring(self._stand.target), ExitStack() as stack:
            watches = self._watches(stack, besides)
            for _ in range(blocks):
                self._block(watches, process)
            self._book([one["candidate"] for one in watches.values()], doubted)
        self._once_more = partial(self.sample, process + 1, blocks, sides)

    def conclude(self, hot_and_cold: Sequence[str] = ()) -> Evaluation:
        """The verdict on all samples; `hot_and_cold` are the sides beside which it is timed in and out of cache."""
        if suspect := self._drifting() or self.skipped():
            return self.verdict(Status.TIMING_SUSPECT, suspect)
        if hot_and_cold:
            self._time_hot_and_cold(hot_and_cold)
        return self._judged(False)

    def watch(self, stack: ExitStack, name: str) -> Stopwatch:
        """A calibrated stopwatch over a fresh process, of which brief batches were asked first.

        A kernel that keeps state gets a process per batch, one whose first call in a process is slow another process.
        """
        with ExitStack() as own:
            watch = self._started(own, name)
            if not watch.misled:
                stack.enter_context(own.pop_all())
                return watch
        self._slow_to_start.add(name)
        return self._started(stack, name)

    def _started(self, stack: ExitStack, name: str) -> Stopwatch:
        stand, material, built = self._stand, self._stand.materials[name], self._proof.built[name]
        tolerance, limit_s = stand.task.tolerance, stand.limit_s(material)
        scatter = know_scatter(stand, material, threads=self._contains(_STARTS_THREADS))
        whole = name in self._slow_to_start
        drawn = material.strangers
        strangers = [drawn[at] for at in stand.rng.permutation(len(drawn))[:STRANGERS]]
        batches: Batches
        if built.stateful:
            self._flags.add("stateful")
            batches = FreshBatches(
                lambda: stand.timed_runner(built, material, strangers=strangers), material, tolerance, stand.rng,
                limit_s=limit_s, strangers=strangers, scatter=scatter, whole=whole,
            )  # fmt: skip
        else:
            runner = stack.enter_context(stand.timed_runner(built, material, strangers=strangers))
            batches = SampledBatches(
                runner, material, tolerance, stand.rng,
                limit_s=limit_s, strangers=strangers, scatter=scatter, whole=whole,
            )  # fmt: skip
        watch = Stopwatch(batches, stand.rng)
        watch.take_brief()
        if not watch.misled:
            watch.calibrate()
        return watch

    @cached_property
    def briefs(self) -> Briefs:
        """What the processes' brief batches say."""
        return Briefs(threads=self._contains(_STARTS_THREADS))

    def skipped(self) -> str:
        """Why a kernel is taken to skip calls or to keep answers, after as many processes as that takes; or empty.

        Who is suspect is asked once more, beside what writing costs now: a neighbour makes both dearer, for seconds.
        Nothing that was seen before counts then, for the kernel or against it.
        """
        if not self._suspected():
            return ""
        for material in self._stand.materials.values():
            material.scattered_bytes_per_s.clear()
        self.briefs = Briefs(threads=self._contains(_STARTS_THREADS), suspect=True)
        if self._once_more:
            self._rows = {name: [] for name in self._rows}
        return self._suspected()

    def _suspected(self) -> str:
        while self.briefs.undecided:
            self._sample_more()
        return self.briefs.reason

    def _drifting(self) -> str:
        """Why its times cannot be believed, where more than a third of its processes say so, and of two more; or empty.

        Without priority a kernel of nested threads may drift the same way six times in a row.
        """
        for more in (2, 0):
            if 3 * sum(map(bool, self._drifts)) <= len(self._drifts):
                return ""
            for _ in range(more):
                self._sample_more(True)
        return next(filter(None, self._drifts))

    def _sample_more(self, doubted: bool = False) -> None:
        """One more process. In a confirmation its blocks count: who is honest in most processes only, is timed in them.
        After a trial it is timed beside nothing.
        """
        if self._once_more:
            self._once_more(doubted)
            return
        with self._stage("time"), measuring(self._stand.target), ExitStack() as stack:
            watches = [self.watch(stack, name) for name in self._proof.built]
            for watch in watches:
                watch.batch_ms()
            self._book(watches, doubted)

    def _book(self, watches: Sequence[Stopwatch], doubted: bool) -> None:
        """What a process's stopwatches, one per workload, say of the kernel's honesty; less where it is not doubted."""
        if doubted:
            parting = self._contains(_STARTS_THREADS) and not can_prioritise()
            pairs = zip(self._proof.built, watches, strict=True)
            names = [name for name, watch in pairs if not watch.agrees(parting=parting)]
            self._drifts.append(f"workload {names[0]}: twice the calls do not take twice the time" if names else "")
        self.briefs.add(watches)

    def _contains(self, name: re.Pattern[bytes]) -> bool:
        """Whether an object has such a symbol: what a kernel says when it runs, it may say otherwise next time."""
        paths = [built.object_path for built in self._proof.built.values()]
        return any(path and name.search(path.read_bytes()) for path in paths)

    def verdict(self, status: Status, reason: str = "") -> Evaluation:
        """The evaluation as it stands; timings go with the statuses that carry them.

        A reason may quote what a kernel printed.
        """
        stand = self._stand
        timed = status in (Status.CORRECT, Status.PRUNED, Status.QUARANTINED)
        timings = tuple(
            WorkloadTiming(
                name,
                self._baseline(name),
                tuple(rows),
                stand.bounds_ms.get(name),
                self._hot.get(name, ()),
                self._cold.get(name, ()),
            )
            for name, rows in self._rows.items()
        )
        if timed and any(is_slow_hot(timing) for timing in timings):
            self._flags.add(SLOW_HOT)
        return Evaluation(
            candidate=self._candidate.id, params=self._params, task=stand.task.id, target=stand.target.id,
            status=status, kind=self._kind, reason=printable(reason), timings=timings if timed else (),
            max_error=self._proof.max_error, facts=self._facts, flags=tuple(sorted(self._flags)),
            seconds=dict(self._seconds), sandbox=self._proof.level,
        )  # fmt: skip

    def _hopeless_s(self, name: str, prune_below: float | None) -> float:
        """Seconds of each of its first calls beyond which nothing else needs to be known about a kernel.

        These calls start threads and touch pages, so short ones are not judged by them.
        """
        if prune_below is None:
            return math.inf
        base_s = self._stand.baselines.stopwatch(self._stand.baseline[name], name).call_s
        return max(base_s * 2 ** (_HOPELESS_LOG2 + 1 - prune_below), _SHORT_S)

    @cached_property
    def _freezing(self) -> tuple[str, ...]:
        """``frozen`` for a kernel that packs weights before the clock runs: it is held to a torch that does so too.

        The first such kernel waits for torch to compile.
        """
        if "prepacked" not in self._flags:
            return ()
        baselines = self._stand.baselines
        with self._stage("frozen"):
            if baselines.state("frozen") == "waiting":
                baselines.prepare("frozen", self._stand.materials)
            if baselines.state("frozen", _FREEZING_S) == "ready":
                return ("frozen",)
        self._flags.add("unfrozen")
        return ()

    def _baseline(self, name: str) -> str:
        """The side that ratios are taken to: the campaign's choice, or frozen where that was faster beside this."""
        chosen = self._stand.baseline[name]
        medians: dict[str, float] = {}
        for side in (chosen, "frozen"):
            times = [ms for row in self._rows.get(name, ()) if (ms := row.baseline_ms(side)) is not None]
            medians |= {side: statistics.median(times)} if times else {}
        return min(medians, key=medians.__getitem__, default=chosen)

    def _sides(self, name: str, sides: Sequence[str]) -> list[str]:
        wanted = {self._stand.baseline[name] if side == "baseline" else side for side in (*sides, *self._freezing)}
        return [side for side in SIDES if side in wanted and self._stand.baselines.has(side)]

    def _watches(self, stack: ExitStack, sides: Mapping[str, Sequence[str]]) -> Watches:
        """Per workload a fresh runner's stopwatch and the baselines'."""
        stand = self._stand
        watches: Watches = {}
        for name in self._proof.built:
            watches[name] = {side: stand.baselines.stopwatch(side, name) for side in sides[name]}
            watches[name]["candidate"] = self.watch(stack, name)
        return watches

    def _block(self, watches: Watches, process: int) -> None:
        for name, sides in watches.items():
            times = paired_block(sides, self._stand.rng)
            self._rows[name].append(Block.of(process, times))

    def _time_hot_and_cold(self, sides: Sequence[str]) -> None:
        with self._stage("hot_cold"):
            for name, built in self._proof.built.items():
                self._hot[name], self._cold[name] = time_hot_and_cold(
                    self._stand, built, self._stand.materials[name], self._sides(name, sides), self._rows[name]
                )

    def _is_below(self, threshold: float) -> bool:
        """Whether the blocks' mean log2 ratios over the workloads are below `threshold` beyond doubt."""
        ratios = self._ratios()
        return max(ratios) < threshold - _HOPELESS_LOG2 or significantly_below(ratios, threshold)

    def _ratios(self) -> list[float]:
        """Per block the mean log2 ratio to the baseline over the workloads."""
        per_workload = [
            [math.log2((row.baseline_ms(side) or row.candidate_ms) / row.candidate_ms) for row in rows]
            for side, rows in ((self._baseline(name), rows) for name, rows in self._rows.items())
        ]
        return [statistics.fmean(column) for column in zip(*per_workload, strict=True)]

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
            return describe(self._stand, self._candidate, self._params, self._proof.built)
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
