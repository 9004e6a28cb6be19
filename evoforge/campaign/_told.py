"""What a model is told of a campaign's task and target; no name of a machine, a person or a folder."""

from __future__ import annotations

from collections.abc import Mapping

from evoforge.campaign._setup import Setup
from evoforge.core import Signature, Target, Task
from evoforge.prompts import TaskBrief, load_contract

__all__ = ["told_of"]


def told_of(task: Task, target: Target, language: str, setup: Setup) -> TaskBrief:
    """The brief that is the same for every request of this campaign."""
    tolerance = task.tolerance
    return TaskBrief(
        source=task.source if task.entry is None else task.imported_source or task.source,
        workloads={name: _signature(signature) for name, signature in setup.signatures.items()},
        tolerance=f"elementwise against fp64, factor {tolerance.factor:g}, NaN and Inf: {tolerance.nonfinite}",
        precision=tolerance.precision,
        language=language,
        contract=load_contract(language),
        baseline_ms={
            workload: {side: time for side, time in times.items() if time is not None}
            for workload, times in (setup.baseline_ms or {}).items()
        },
        bounds_ms=dict(setup.bounds_ms or {}),
        target_facts=_facts(target, setup.ceilings),
    )


def _signature(signature: Signature) -> str:
    """The tensors in the ABI's order: ``in0 f32[8,1024]``, with strides where they are not contiguous."""
    words = []
    for prefix, specs in (("in", signature.inputs), ("cst", signature.constants), ("out", signature.outputs)):
        for index, spec in enumerate(specs):
            expected, step = [], 1
            for size in reversed(spec.shape):
                expected.append(step)
                step *= max(size, 1)
            dense = spec.stride == tuple(reversed(expected))
            strides = "" if dense else f" strides {','.join(map(str, spec.stride))}"
            words.append(f"{prefix}{index} ({spec.name}): {spec.dtype}[{','.join(map(str, spec.shape))}]{strides}")
    return "; ".join(words)


def _facts(target: Target, ceilings: Mapping[str, float]) -> Mapping[str, str]:
    """What matters to a kernel, and nothing that tells whose machine it is."""
    known = target.fingerprint
    facts = {"threads": str(target.threads), "isa": target.isa, "vector bytes": str(target.vector_bytes)}
    for key, name in (("cpu", "processor"), ("compiler", "compiler")):
        if known.get(key):
            facts[name] = str(known[key])
    facts["L1 data cache per core"] = f"{target.l1_bytes // 1024} KiB"
    facts["L2 cache per core"] = f"{target.l2_bytes // 1024} KiB"
    if known.get("l3_bytes"):
        facts["L3 cache"] = f"{int(known['l3_bytes']) >> 20} MiB"
    for name, rate in sorted(ceilings.items()):
        unit = "GFLOP/s" if name.startswith("flops/") else "GB/s"
        facts[f"measured {name}"] = f"{rate / 1e9:.3g} {unit}"
    return facts
