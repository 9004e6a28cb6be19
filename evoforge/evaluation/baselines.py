"""The baselines of one task: started, watched, timed and started again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import ExitStack

import numpy as np

from evoforge.core import SIDES, Task
from evoforge.errors import WorkerError
from evoforge.evaluation.busy import BusyClock
from evoforge.evaluation.material import Material
from evoforge.evaluation.priority import prioritise
from evoforge.evaluation.timing import Stopwatch
from evoforge.evaluation.worker import BaselineWorker

__all__ = ["Baselines"]


class Baselines:
    """One process for each of `SIDES` that was asked for, shared by all kernels of a judge.

    All but eager are compiled by torch, in the background; that can fail, and then the side is left out.

    Args:
        seed: of the weights: the one the reference has.
    """

    def __init__(
        self, task: Task, *, threads: int, seed: int, isa: str, busy: BusyClock, rng: np.random.Generator
    ) -> None:
        self._task = task
        self._options = {"threads": threads, "seed": seed, "isa": isa}
        self._busy = busy
        self._rng = rng
        self._workers: dict[str, BaselineWorker] = {}
        self._materials: dict[str, Material] = {}
        self._watches: dict[tuple[str, str, int], Stopwatch] = {}
        self._handed: dict[tuple[str, str], int] = {}
        self._failed: dict[str, str] = {}
        self._compiling = {side: ExitStack() for side in SIDES}

    def spawn(self, side: str) -> None:
        """Starts a side's process; importing torch goes on in the background."""
        self._watches = {key: watch for key, watch in self._watches.items() if key[0] != side}
        self._workers[side] = BaselineWorker(self._task, side=side, **self._options)  # type: ignore[arg-type]

    def prepare(self, side: str, materials: Mapping[str, Material]) -> None:
        """Hands a side its input sets; all but eager then compile in the background."""
        self._materials = dict(materials)
        if side not in self._workers:
            self.spawn(side)
        if side != "eager" and side not in self._failed:
            self._compiling[side].close()
            self._compiling[side].enter_context(self._busy.working())
        for name in materials:
            self._hand_over(side, name)

    def state(self, side: str, timeout_s: float = 0.0) -> str:
        """After at most `timeout_s`: ``waiting`` to be prepared, ``compiling``, ``ready`` or ``failed: reason``."""
        if side in self._failed:
            return f"failed: {self._failed[side]}"
        if not any(handed == side for handed, _ in self._handed):
            return "waiting"
        try:
            done = self._workers[side].ready(timeout_s)
        except WorkerError as error:
            self._failed[side] = str(error)
            self._compiling[side].close()
            return f"failed: {error}"
        if done:
            self._compiling[side].close()
        return "ready" if done else "compiling"

    def has(self, side: str) -> bool:
        """Whether the side can be timed now."""
        return side == "eager" or self.state(side) == "ready"

    def stopwatch(self, side: str, workload: str, sets: int | None = None) -> Stopwatch:
        """The calibrated stopwatch of one side on one workload; kept for as long as its process lives.

        Args:
            sets: how many of the material's sets a batch rotates through; by default its ring.

        Raises:
            WorkerError: the process died.
        """
        sets = sets or len(self._materials[workload].ring)
        if (side, workload, sets) in self._watches:
            return self._watches[side, workload, sets]
        if sets > self._handed[side, workload]:
            self._hand_over(side, workload)
        prioritise(self._workers[side].pid)
        batches = _SideBatches(self._workers[side], workload, sets, self._busy, self._rng)
        watch = Stopwatch(batches, self._rng)
        watch.calibrate()
        self._watches[side, workload, sets] = watch
        return watch

    def _hand_over(self, side: str, workload: str) -> None:
        sets = self._materials[workload].sets
        self._workers[side].prepare(workload, sets)
        self._handed[side, workload] = len(sets)

    def revive(self) -> None:
        """Starts dead processes again, so that the next kernel finds its baselines."""
        for side, worker in list(self._workers.items()):
            if not self.has(side):
                continue
            try:
                worker.empty()
            except WorkerError:
                worker.close()
                self.spawn(side)
                self.prepare(side, self._materials)

    def close(self) -> None:
        for compiling in self._compiling.values():
            compiling.close()
        for worker in self._workers.values():
            worker.close()


class _SideBatches:
    def __init__(
        self, worker: BaselineWorker, workload: str, n_sets: int, busy: BusyClock, rng: np.random.Generator
    ) -> None:
        self._worker = worker
        self._workload = workload
        self._n_sets = n_sets
        self._busy = busy
        self._rng = rng

    most = 1 << 20
    busy_s = math.inf

    def brief(self, *, again: bool = False) -> None:
        """torch is trusted to work."""

    def batch(self, n: int, expected_s: float) -> float:
        with self._busy.working():
            return self._worker.run(self._workload, n, int(self._rng.integers(self._n_sets)), span=self._n_sets)

    def empty(self, *, again: bool = False) -> float:
        return self._worker.empty()
