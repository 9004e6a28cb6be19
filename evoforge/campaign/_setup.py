"""What is found out about a task on a target before the search starts, kept with the campaign."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from evoforge.core import Params, Signature, Target, Task
from evoforge.errors import UnsupportedError
from evoforge.lowering.ir import Graph, from_json, to_json

if TYPE_CHECKING:
    from evoforge.evaluation.judge import Judge

__all__ = ["NEAR_BOUND", "Setup", "Trace", "analyse", "bounded", "side_leads", "with_baseline"]

NEAR_BOUND = 0.95  # bound / time from which on there is nothing to gain


@dataclass(frozen=True)
class Trace:
    """The decisions of an elite of campaign `origin`, as far as they exist here, and its parameters."""

    origin: str
    genome: Mapping[str, Any]
    params: Params = field(default_factory=dict)


@dataclass(frozen=True)
class Setup:
    """One entry per workload name in every mapping.

    `graphs` is empty, with the reason in `uncovered`, where the lowering does not cover the task:
    foreign kernels can still be judged then, but nothing can be generated. `unfused` counts the
    tensor-sized intermediates of the task when nothing is fused (None: unknown). `baseline_ms` maps
    eager and compiled to their latency when the baseline was chosen. `ceilings` and `instructions` (names of
    instruction sets) are the target's, as then.
    `imports` maps files that the task imports (none that are installed) to their digests.
    `traces` are the decisions that other campaigns gave this one to begin with (`evoforge.campaign._transfer`);
    None: not looked for.
    """

    signatures: Mapping[str, Signature]
    trace_signatures: Mapping[str, Signature | None]
    graphs: Mapping[str, Graph]
    uncovered: str = ""
    unfused: int | None = None
    bounds_ms: Mapping[str, float | None] | None = None
    baseline: Mapping[str, str] | None = None
    baseline_ms: Mapping[str, Mapping[str, float | None]] | None = None
    aa_margin: float | None = None
    notices: tuple[str, ...] = ()
    ceilings: Mapping[str, float] = field(default_factory=dict)
    instructions: tuple[str, ...] = ()
    imports: Mapping[str, str] = field(default_factory=dict)
    traces: tuple[Trace, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "signatures": {name: item.to_json() for name, item in self.signatures.items()},
            "trace_signatures": {n: item.to_json() if item else None for n, item in self.trace_signatures.items()},
            "graphs": {name: to_json(graph) for name, graph in self.graphs.items()},
            "uncovered": self.uncovered,
            "unfused": self.unfused,
            "bounds_ms": self.bounds_ms,
            "baseline": self.baseline,
            "baseline_ms": self.baseline_ms,
            "aa_margin": self.aa_margin,
            "notices": list(self.notices),
            "ceilings": dict(self.ceilings),
            "instructions": list(self.instructions),
            "imports": dict(self.imports),
            "traces": None if self.traces is None else [asdict(trace) for trace in self.traces],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Setup:
        return cls(
            signatures={name: Signature.from_json(item) for name, item in data["signatures"].items()},
            trace_signatures={
                name: Signature.from_json(item) if item else None for name, item in data["trace_signatures"].items()
            },
            graphs={name: from_json(item) for name, item in data["graphs"].items()},
            uncovered=data["uncovered"],
            unfused=data["unfused"],
            bounds_ms=data["bounds_ms"],
            baseline=data["baseline"],
            baseline_ms=data["baseline_ms"],
            aa_margin=data["aa_margin"],
            notices=tuple(data["notices"]),
            ceilings=data.get("ceilings", {}),
            instructions=tuple(data.get("instructions", ())),
            imports=data.get("imports", {}),
            traces=None if (found := data.get("traces")) is None else tuple(Trace(**trace) for trace in found),
        )

    @property
    def lead(self) -> dict[str, float | None]:
        """See `side_leads`."""
        return side_leads(self.baseline, self.baseline_ms)

    def with_notice(self, text: str) -> Setup:
        """`self` with one more notice, unless it is there."""
        return self if text in self.notices else replace(self, notices=(*self.notices, text))

    @property
    def nothing_to_gain(self) -> str:
        """The sentence for a task that is at its bound."""
        shares = []
        for workload, side in (self.baseline or {}).items():
            time_ms, bound = (self.baseline_ms or {})[workload].get(side), (self.bounds_ms or {}).get(workload)
            if time_ms and bound:
                shares.append(f"{workload}: {side} takes {time_ms:.3g} ms, at least {bound:.3g} ms are needed")
        return f"nothing to gain: the baseline is at the bound of this machine ({'; '.join(shares)})"

    @property
    def at_bound(self) -> bool:
        """Bound / baseline >= 0.95 on every workload: nothing to gain."""
        shares = self._shares()
        return bool(shares) and min(shares) >= NEAR_BOUND

    def _shares(self) -> list[float]:
        """Bound / baseline of every workload; empty where one of them is unknown."""
        pairs = [
            ((self.bounds_ms or {}).get(workload), (self.baseline_ms or {}).get(workload, {}).get(side))
            for workload, side in (self.baseline or {}).items()
        ]
        shares = [bound / time_ms for bound, time_ms in pairs if bound and time_ms]
        return shares if len(shares) == len(pairs) else []


def side_leads(
    baseline: Mapping[str, str] | None, baseline_ms: Mapping[str, Mapping[str, float | None]] | None
) -> dict[str, float | None]:
    """log2(side / baseline) over the workloads, for eager and compiled; None: not timed."""
    leads: dict[str, float | None] = {}
    for side in ("eager", "compiled"):
        logs = []
        for workload, times in (baseline_ms or {}).items():
            own, base = times.get(side), times.get((baseline or {})[workload])
            logs.append(math.log2(own / base) if own and base else None)
        known = [value for value in logs if value is not None]
        leads[side] = statistics.fmean(known) if known and len(known) == len(logs) else None
    return leads


def analyse(judge: Judge, task: Task, target: Target) -> Setup:
    """Captures every workload's graph and derives bounds and traced sizes from it.

    An operator that the lowering does not cover is not an error here: see `Setup.uncovered`.
    """
    from evoforge.evaluation.targets import instruction_sets
    from evoforge.lowering.cost import laid_out, trace_signature

    signatures = judge.signatures
    graphs: dict[str, Graph] = {}
    uncovered = ""
    try:
        for workload in task.workloads:
            graph = from_json(judge.analyse("evoforge.lowering.capture:capture", workload.name))
            graphs[workload.name] = laid_out(graph, signatures[workload.name])
    except UnsupportedError as error:
        graphs, uncovered = {}, str(error)
    traces: dict[str, Signature | None] = {}
    for name, signature in signatures.items():
        known = graphs.get(name)
        traces[name] = trace_signature(known, signature, target.l2_bytes) if known else None
    first = next(iter(graphs.values()), None)
    unfused = first.unfused if first else None
    imports = judge.analyse("evoforge.evaluation.imported:imported_files", task.workloads[0].name)
    found = Setup(
        signatures, traces, graphs, uncovered, unfused, notices=tuple(_astray(judge, task)),
        instructions=instruction_sets(target.isa), imports=imports,
    )  # fmt: skip
    return bounded(found, judge, target)


def _astray(judge: Judge, task: Task) -> Iterator[str]:
    for workload in task.workloads:
        if found := judge.analyse("evoforge.evaluation.starts:astray", workload.name):
            names = ", ".join(f"in{at}" for at in found)
            yield (
                f"{workload.name}: get_inputs() makes {names} start beside a multiple of 64 bytes (a slice, .imag, "
                "NumPy's memory), and exported kernels leave such inputs to PyTorch; clone() them there and in calls"
            )


def bounded(setup: Setup, judge: Judge, target: Target) -> Setup:
    """`setup` with the physical bounds that the target's ceilings give, which the judge gets too."""
    from evoforge.evaluation.physics import bound_ms
    from evoforge.lowering.cost import flops, read_elements

    bounds = {}
    for name, signature in setup.signatures.items():
        graph = setup.graphs.get(name)
        work, read = (flops(graph), read_elements(graph)) if graph else ({}, None)
        bounds[name] = bound_ms(signature, work, target, judge.task.tolerance.precision, read)
    judge.set_bounds(bounds)
    return replace(setup, bounds_ms=bounds, ceilings=dict(target.ceilings))


def with_baseline(setup: Setup, judge: Judge) -> Setup:
    """`setup` with the judge's choice of baseline and the machine's noise."""
    return replace(setup, baseline=dict(judge.baseline), baseline_ms=judge.baseline_ms, aa_margin=judge.aa_margin())
