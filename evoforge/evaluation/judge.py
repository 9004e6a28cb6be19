"""The judge: holds the secret inputs, the right answers, the clock and the verdict.

One candidate travels screen → build → verify → quick time → facts; the cheap and deadly steps come
first. Candidate code runs in runner processes only, the reference and the baselines in processes of
their own, and none of them beside one another while a time is taken.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import statistics
import threading
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Self

import numpy as np

from evoforge.core import Candidate, Evaluation, Kind, Params, Signature, Status, Target, Task
from evoforge.errors import EvoforgeError, UsageError, WorkerError
from evoforge.evaluation import check
from evoforge.evaluation.admission import Admission, admit
from evoforge.evaluation.baselines import Baselines
from evoforge.evaluation.build import Builder
from evoforge.evaluation.built import Built
from evoforge.evaluation.busy import BusyClock
from evoforge.evaluation.comparison import Comparison, duel, looked_at
from evoforge.evaluation.material import (
    Known,
    draw_extremes,
    draw_touched,
    draw_unseen,
    know_ring,
    make_material,
    widen_pool,
)
from evoforge.evaluation.priority import measuring
from evoforge.evaluation.race import race
from evoforge.evaluation.rounds import in_rounds
from evoforge.evaluation.runner import LEVELS, KernelFault, runner_program
from evoforge.evaluation.stand import Stand, build_all, describe
from evoforge.evaluation.tasks import accepted_controls
from evoforge.evaluation.timing import paired_block, t_half_width
from evoforge.evaluation.trial import Trial
from evoforge.evaluation.worker import ReferenceWorker

__all__ = ["Judge"]

_CHOICES = ("eager", "compiled")
"""The sides that a campaign's baseline is one of."""
_AA_GROUPS = 5
_RESERVE_USES = 32


class Judge:
    """Judges kernels for one task on one target. A context manager; `open` before anything else.

    `build` is safe from several threads; everything that measures is for one thread at a time.

    Args:
        seed: of the admission's inputs. Weights and all other inputs come from secret seeds, drawn anew
            for every judge, that nothing else knows.
        sandbox: strict, basic or none: what runners try for.
        threads: default the target's.
        call_limit_s: the least time that one call is granted; slow tasks get 100 × eager.

    Raises:
        UsageError: an unknown sandbox level.
        MissingToolError: no C++ compiler.
    """

    def __init__(
        self, task: Task, target: Target, *, seed: int, sandbox: str = "basic", threads: int | None = None,
        call_limit_s: float = 3.0,
    ) -> None:  # fmt: skip
        if sandbox not in LEVELS:
            raise UsageError(f"expected judge.sandbox to be one of {', '.join(LEVELS)}, got {sandbox!r}")
        self.task = task
        self.target = target
        self.baseline_ms: dict[str, dict[str, float | None]] = {}
        self._seed = seed
        self._threads = threads or target.threads
        self._busy = BusyClock()
        self._rng = np.random.default_rng([seed, secrets.randbits(64)])
        self._weights = int(self._rng.integers(1 << 31))
        self._reference: ReferenceWorker | None = None
        self._baselines = Baselines(
            task, threads=self._threads, seed=self._weights, isa=target.isa, busy=self._busy, rng=self._rng
        )
        self._stand = Stand(
            task=task, target=target, sandbox=sandbox, threads=self._threads,
            builder=Builder(target, sandbox=sandbox, busy=self._busy), baselines=self._baselines, busy=self._busy,
            rng=self._rng, unseen=self._unseen, extremes=self._extremes, touched=self._touched,
            call_limit_s=call_limit_s,
            baseline={workload.name: "eager" for workload in task.workloads},
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends every process and frees the shared memory; safe to call twice."""
        self._baselines.close()
        if self._reference is not None:
            self._reference.close()
        for material in self._stand.materials.values():
            material.close()
        self._stand.materials.clear()

    def open(self, *, compiled: bool = False) -> None:
        """Starts reference and eager, draws the secret inputs.

        Args:
            compiled: `start_compiling` will follow: that process, too, can start and import what it needs.

        Raises:
            TaskError: the task cannot be run.
            UnsupportedError: a tensor kind that is not covered.
            WorkerError: a process died.
        """
        tools = threading.Thread(target=self._make_tools, daemon=True)
        tools.start()
        with self._busy.working():
            self._baselines.spawn("eager")
            self._reference = self._new_reference()
            for name, signature in self._reference.describe().items():
                self._stand.materials[name] = make_material(
                    self._reference, name, signature, self._rng, l2_total_bytes=self.target.l2_total_bytes
                )
            self._baselines.prepare("eager", self._stand.materials)
            for name, material in self._stand.materials.items():
                material.eager_s = self._baselines.stopwatch("eager", name).call_s
            tools.join()
            if compiled:
                self._baselines.spawn("compiled")

    @property
    def signatures(self) -> dict[str, Signature]:
        return {name: material.signature for name, material in self._stand.materials.items()}

    @property
    def dropped_families(self) -> dict[str, tuple[str, ...]]:
        """Per workload the input families drawn so far that were dropped (`material`), if any."""
        return {name: material.dropped for name, material in self._stand.materials.items() if material.dropped}

    @property
    def busy_seconds(self) -> float:
        """Seconds so far in which a compiler, kernel, reference or baseline was at work."""
        return self._busy.seconds

    def analyse(self, function: str, workload: str) -> Any:
        """What ``module:function`` says about (eval-mode module, example inputs), run beside the reference."""
        with self._busy.working():
            return self._live_reference().analyse(function, workload)

    def admit(self) -> Admission:
        """Whether the task accepts itself and rejects wrong answers."""
        with self._busy.working():
            return admit(
                self._live_reference(), self.signatures, self.task.tolerance, key=self.task.id, seed=self._seed,
                overrides=accepted_controls(self.task.source, self.task.path or self.task.name),
            )  # fmt: skip

    def set_bounds(self, bounds_ms: Mapping[str, float | None]) -> None:
        """The physical lower bound of every workload's latency; beyond 1.15 × of it is QUARANTINED."""
        self._stand.bounds_ms = dict(bounds_ms)

    def set_context(self, traces: Mapping[str, Signature | None], unfused: int | None) -> None:
        """What facts need from the graph: a shrunken signature per workload, and the unfused intermediates."""
        self._stand.traces = dict(traces)
        self._stand.unfused = unfused

    @property
    def baseline(self) -> dict[str, str]:
        """Per workload the side that ratios are taken to: eager until `choose_baseline` or an assignment."""
        return self._stand.baseline

    @baseline.setter
    def baseline(self, sides: Mapping[str, str]) -> None:
        self._stand.baseline = dict(sides)

    def start_compiling(self) -> None:
        """Lets torch.compile work in the background from now on; it disturbs what is timed meanwhile."""
        if self.compiled_state() == "waiting":
            self._baselines.prepare("compiled", self._stand.materials)

    def compiled_state(self) -> str:
        """``waiting`` to be started, ``compiling``, ``ready`` or ``failed: reason``."""
        return self._baselines.state("compiled")

    def wait_compiled(self, timeout_s: float) -> str:
        """`compiled_state` after at most `timeout_s`; the pools of secret inputs grow meanwhile.

        Starts compiling unless that was done.

        Raises:
            WorkerError: the reference process died.
        """
        self.start_compiling()
        self._widen_pools()
        return self._baselines.state("compiled", timeout_s)

    def choose_baseline(self, which: str = "best", *, blocks: int = 7) -> dict[str, str]:
        """Times eager and compiled and settles `baseline` per workload: ``best``, or the one named.

        A disturbance makes a side slower and never faster, so of several calls each side's lowest
        median counts: the baseline that a kernel must beat is the strongest that was seen.

        Raises:
            UsageError: compiled was asked for and torch.compile does not work on this task.
            WorkerError: a baseline process died.
        """
        state = self.compiled_state()
        if which not in ("best", *_CHOICES):
            raise UsageError(f"expected baseline to be best, eager or compiled, got {which!r}")
        if which == "compiled" and state != "ready":
            raise UsageError(f"expected torch.compile to work, as baseline: compiled asks for, got {state}; use eager")
        sides = [side for side in _CHOICES if self._baselines.has(side)]
        with measuring(self.target):
            for name in self._stand.materials:
                watches = {side: self._baselines.stopwatch(side, name) for side in sides}
                rows = [paired_block(watches, self._rng) for _ in range(blocks)]
                medians: dict[str, float | None] = dict.fromkeys(_CHOICES)
                before = self.baseline_ms.get(name, {})
                for side in sides:
                    medians[side] = min(statistics.median(row[side] for row in rows), before.get(side) or math.inf)
                self.baseline_ms[name] = medians
                fastest = min(sides, key=lambda side: medians[side] or math.inf)
                self.baseline[name] = fastest if which == "best" else which
        return dict(self.baseline)

    def build(self, candidate: Candidate, params: Params) -> dict[str, Built]:
        """The candidate built for every workload, from the cache where it is there; thread-safe."""
        return build_all(self._stand, candidate, {**candidate.space.defaults(), **params})

    def build_ahead(self, candidate: Candidate, params: Params) -> None:
        """Builds and describes into the caches, so that the trial finds both; thread-safe, silent on failure."""
        with contextlib.suppress(EvoforgeError):  # the trial meets it again and books it
            values = {**candidate.space.defaults(), **params}
            built = build_all(self._stand, candidate, values)
            if all(one.status is Status.CORRECT for one in built.values()):
                describe(self._stand, candidate, values, built)

    def verify(self, candidate: Candidate, params: Params, *, unseen: bool = False) -> Evaluation:
        """Screen, build and verification only: UNMEASURED when it is right.

        Args:
            unseen: on a set that no trial meets and on extremes, too, as a would-be elite is.
        """
        trial = Trial(self._stand, candidate, params, Kind.TRIAL)
        return trial.attempt(partial(trial.prove, unseen=unseen)) or trial.verdict(Status.UNMEASURED)

    def trial(
        self, candidate: Candidate, params: Params, *, blocks: int = 4, prune_below: float | None = None,
        wanted_facts: bool = True,
    ) -> Evaluation:  # fmt: skip
        """One budgeted evaluation, on every workload.

        Args:
            params: overlay the candidate's defaults.
            blocks: paired blocks per workload, against `baseline`. A kernel so slow that they take
                more than 2 s gets fewer.
            prune_below: log2 speed-up; a kernel significantly below it after four blocks, or four
                times slower after one, or eight times after one call, ends PRUNED without facts.
        """
        trial = Trial(self._stand, candidate, params, Kind.TRIAL)
        return trial.attempt(
            lambda: trial.prove(prune_below=prune_below) or trial.quick(blocks, prune_below, wanted_facts)
        )

    def confirm(
        self, candidate: Candidate, params: Params, *, processes: int = 5, blocks_per_process: int = 2,
        sides: Sequence[str] = ("baseline",), kind: Kind = Kind.CONFIRM, hot_and_cold: bool = False,
        sanitized: bool = False,
    ) -> Evaluation:  # fmt: skip
        """Measured again over fresh runner processes, after verification on an input set nobody has seen.

        Args:
            sides: ``baseline``, ``eager``, ``compiled``; those that cannot run are left out. A kernel that
                packs weights is timed beside ``frozen`` too.
            hot_and_cold: time it, beside the same sides, in cache and out of cache too, for information
                (`evoforge.evaluation.hotcold`): up to six blocks more per workload.
            sanitized: first call it once under the sanitizers; some seconds, once per build.
        """
        rounds = in_rounds(
            [Trial(self._stand, candidate, params, kind)], sides, processes=processes, blocks=blocks_per_process,
            hot_and_cold=hot_and_cold, sanitized=[0] if sanitized else [],
        )  # fmt: skip
        return next(found for verdicts in rounds for _, found in verdicts)

    def bench(
        self, kernels: Sequence[tuple[Candidate, Params]], *, sanitized: Container[int] = ()
    ) -> list[Iterator[tuple[int, Evaluation]]]:
        """Confirms many kernels in turns, beside eager and compiled, hot and cold (see `in_rounds`).

        Args:
            sanitized: which of them are called once under the sanitizers first.
        """
        trials = [Trial(self._stand, *kernel, Kind.BENCH) for kernel in kernels]
        return in_rounds(trials, ("eager", "compiled"), processes=5, blocks=2, hot_and_cold=True, sanitized=sanitized)

    def race(self, kernels: Sequence[tuple[Candidate, Params]], *, limit_s: float) -> list[Evaluation]:
        """Which of kernels that were confirmed is the fastest, in turns; verdicts in their order (see `race`)."""
        return race([Trial(self._stand, *kernel, Kind.RACE) for kernel in kernels], self._rng, limit_s=limit_s)

    def compare(
        self, first: tuple[Candidate, Params], second: tuple[Candidate, Params], *, blocks: int = 3
    ) -> Comparison:
        """Whether the first kernel is FAST, SLOW or the SAME beside the second, on all workloads.

        Up to 32 times both start afresh and take turns, every block timing each of them twice, so that
        the noise of this task on this machine is measured in the same breath.

        Raises:
            UsageError: one of them is not correct.
        """
        trials = [Trial(self._stand, candidate, params, Kind.TRIAL) for candidate, params in (first, second)]
        for trial in trials:
            if found := trial.attempt(trial.prove):
                raise UsageError(
                    f"expected two correct kernels, {found.candidate[:12]} is {found.status}: {found.reason}"
                )
        try:
            verdict = looked_at(lambda: duel(self._stand, trials[0], trials[1], blocks))
            suspect = next(filter(None, (trial.skipped() for trial in trials)), "")
        except KernelFault as fault:
            raise UsageError(f"expected two correct kernels, one ended {fault.status}: {fault.reason}") from None
        if suspect:
            raise UsageError(f"expected two correct kernels, one is {Status.TIMING_SUSPECT}: {suspect}")
        return verdict

    def aa_margin(self) -> float:
        """Noise of this task on this machine: the log2 half-width of a 95% interval of A against A.

        The baseline against itself, in as many groups of two blocks as a confirmation has processes;
        the worst workload counts.
        """
        widths = []
        with measuring(self.target):
            for name in self._stand.materials:
                watch = self._baselines.stopwatch(self.baseline[name], name)
                groups = []
                for _ in range(_AA_GROUPS):
                    ratios = []
                    for _ in range(2):
                        first = watch.batch_ms()
                        ratios.append(math.log2(first / watch.batch_ms()))
                    groups.append(statistics.median(ratios))
                widths.append(t_half_width(groups))
        return max(widths)

    def _make_tools(self) -> None:
        """Compiles what the first kernel needs while torch is being imported; failures come up again there."""
        with contextlib.suppress(EvoforgeError, OSError):
            self._stand.builder.prepare()
            runner_program()
            check.prepare()

    def _new_reference(self) -> ReferenceWorker:
        return ReferenceWorker(
            self.task, threads=self._threads, seed=self._weights, isa=self.target.isa, signatures=self.signatures
        )

    def _live_reference(self) -> ReferenceWorker:
        if self._reference is None:
            raise UsageError("expected an open judge; call open() first")
        return self._reference

    @contextlib.contextmanager
    def _reference_at_work(self) -> Iterator[ReferenceWorker]:
        """The reference process; if it turns out to be dead, another one is started for the next time."""
        reference = self._live_reference()
        try:
            with self._busy.working():
                yield reference
        except WorkerError:
            reference.close()
            self._reference = self._new_reference()
            raise

    def _widen_pools(self) -> None:
        with self._reference_at_work() as reference:
            for material in self._stand.materials.values():
                widen_pool(reference, material, self.task.tolerance, self._rng)
                know_ring(reference, material)

    def _extremes(self, name: str) -> tuple[Known, ...]:
        with self._reference_at_work() as reference:
            return draw_extremes(reference, self._stand.materials[name], self.task.tolerance, self._rng)

    def _touched(self, name: str) -> Known | None:
        with self._reference_at_work() as reference:
            return draw_touched(reference, self._stand.materials[name], self.task.tolerance, self._rng)

    def _unseen(self, name: str) -> Known:
        """A secret set that no trial has met.

        It serves several confirmations, a candidate's later ones too: its processes keep nothing.
        """
        material = self._stand.materials[name]
        if material.reserve and material.reserve_uses < _RESERVE_USES:
            material.reserve_uses += 1
            return material.reserve
        with self._reference_at_work() as reference:
            known = draw_unseen(reference, material, self.task.tolerance, self._rng)
        if material.reserve:
            material.reserve.close()
        material.reserve, material.reserve_uses = known, 1
        return known
