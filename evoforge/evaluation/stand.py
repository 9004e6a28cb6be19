"""What all trials of one judge share: its task, target, secrets, processes and clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any

import numpy as np

from evoforge.core import Candidate, Params, Signature, Target, Task
from evoforge.evaluation.baselines import Baselines
from evoforge.evaluation.build import Builder
from evoforge.evaluation.built import Built
from evoforge.evaluation.busy import BusyClock
from evoforge.evaluation.check import poison
from evoforge.evaluation.material import Known, Material
from evoforge.evaluation.priority import prioritise
from evoforge.evaluation.runner import Runner
from evoforge.evaluation.shared import SharedTensors

__all__ = ["Stand", "build_all", "describe"]

_LIMIT_FACTOR = 100.0
_MAX_LIMIT_S = 120.0


@dataclass
class Stand:
    """What all trials of one judge share.

    `baseline` names a side per workload, `bounds_ms` the physical bound of its latency, `traces` the
    shrunken signature on which facts are traced, `unfused` the tensor-sized intermediates of the task
    when nothing is fused. `unseen` gives a secret set of a workload that no trial has met, `extremes`
    its sets of extreme values, `touched` one whose weights are others
    in part. `passed` remembers which sets a kernel at its values has passed.
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
    extremes: Callable[[str], Sequence[Known]]
    touched: Callable[[str], Known | None]
    call_limit_s: float
    materials: dict[str, Material] = field(default_factory=dict)
    baseline: dict[str, str] = field(default_factory=dict)
    bounds_ms: dict[str, float | None] = field(default_factory=dict)
    traces: dict[str, Signature | None] = field(default_factory=dict)
    unfused: int | None = None
    passed: dict[tuple[str, tuple[tuple[str, int], ...]], set[int]] = field(default_factory=lambda: defaultdict(set))

    def limit_s(self, material: Material) -> float:
        """How long one call may take."""
        return min(max(self.call_limit_s, _LIMIT_FACTOR * material.eager_s), _MAX_LIMIT_S)

    def timed_runner(
        self, built: Built, material: Material, sets: Sequence[SharedTensors] | None = None,
        strangers: Sequence[Known] = (),
    ) -> Runner:  # fmt: skip
        """A fresh process with this kernel, `sets` (the timing ring) and `strangers` behind them, ahead of other work.

        What it prints goes into no message: it may know answers of the ring, which later kernels are timed on.
        """
        sets = [*(sets or material.ring), *(one.inputs for one in strangers)]
        runner = self.runner(built, material, sets, quotes=False)
        prioritise(runner.pid)
        return runner

    def runner(
        self, built: Built, material: Material, sets: Sequence[SharedTensors],
        constants: SharedTensors | None = None, quotes: bool = True,
    ) -> Runner:  # fmt: skip
        """A fresh process with this kernel, under `constants` or the workload's own weights.

        It maps all output buffers, and the sets again and again up to one number: a kernel that counts them must not
        see whether it is verified or timed. All outputs are poisoned first: what an earlier process left in them is
        gone before any of the kernel runs, `evo_workspace` and `evo_prepare` included.
        """
        assert built.library_path is not None
        signature = material.signature
        outputs = (*material.outputs, *material.spare)
        for variant, written in enumerate(outputs):
            poison(written, variant & 1)
        count = max(len(sets), material.mapped)
        room = max(1 << 30, 4 * (signature.input_bytes + signature.constant_bytes + signature.output_bytes))
        return Runner(
            built.library_path, signature, constants=constants or material.constants,
            sets=list(islice(cycle(sets), count)), outputs=outputs, threads=self.threads, sandbox=self.sandbox,
            memory_bytes=room, busy=self.busy, timeout_s=10.0 + self.limit_s(material), quotes=quotes,
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
