"""What a model is told of a campaign's task and target; no name of a machine, a person or a folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from evoforge.campaign._models import check_models, leaves, sent_by, specs_of
from evoforge.campaign._setup import Setup
from evoforge.config import CampaignConfig
from evoforge.core import Signature, Target, Task
from evoforge.prompts import Brief, PromptPool, TaskBrief, load_contract, render

__all__ = ["told_before", "told_of"]

_LATER = (
    "added at run time: the tensors' exact shapes and strides, baseline times, bounds and measured ceilings; then "
    "kernels with their verdicts, in other requests (improve, aim, cross, …); evoforge ask NAME --show prints them"
)


def told_before(config: CampaignConfig, task: Task, target: Target) -> dict[str, str]:
    """What a campaign with models would send first, as far as it is known before one exists.

    Returns:
        `notice` (who gets what), `system` and `user` (the text), `later` (what only a run finds out);
        nothing without models.

    Raises:
        UsageError: as `check_models`, but for keys: nobody is asked.
    """
    check_models(config, asks=False)
    if not config.models:
        return {}
    workloads = {workload.name: dict(workload.overrides) for workload in task.workloads}
    shapes = {name: str(values) if values else "as the task says" for name, values in workloads.items()}
    none_yet = Setup(signatures={}, trace_signatures={}, graphs={})
    brief = replace(told_of(task, target, config.language, none_yet), workloads=shapes)
    first = PromptPool.named(config.meta_prompts.pool, config.language).active()[0]
    prompt = render(Brief("invent", brief), first, tokens=config.meta_prompts.tokens, send=sent_by(config))
    local = sorted({spec.provider for spec in specs_of(config) if spec.local})
    stays = f"nothing leaves this machine: {', '.join(local)} is on it"
    return {"notice": leaves(config) or stays, "system": prompt.system, "user": prompt.user, "later": _LATER}


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
        target_facts=_facts(target, setup),
        busy=_busy(task, target, setup),
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


def _busy(task: Task, target: Target, setup: Setup) -> bool:
    """Whether in most workloads the bound is that of arithmetic: memory alone would let them be faster."""
    from evoforge.evaluation.physics import bound_ms
    from evoforge.lowering.cost import read_elements

    there = replace(target, ceilings=setup.ceilings)
    votes = []
    for name, bound in (setup.bounds_ms or {}).items():
        read = read_elements(setup.graphs[name]) if name in setup.graphs else None
        memory = bound_ms(setup.signatures[name], {}, there, task.tolerance.precision, read)
        votes.append(bound is not None and memory is not None and bound > 1.1 * memory)
    return 2 * sum(votes) > len(votes)


def _facts(target: Target, setup: Setup) -> Mapping[str, str]:
    """What matters to a kernel, and nothing that tells whose machine it is."""
    known = target.fingerprint
    facts = {"threads": str(target.threads), "isa": target.isa, "vector bytes": str(target.vector_bytes)}
    if setup.instructions:
        facts["instruction sets"] = " ".join(setup.instructions)
    for key, name in (("cpu", "processor"), ("compiler", "compiler")):
        if known.get(key):
            facts[name] = str(known[key])
    facts["L1 data cache per core"] = f"{target.l1_bytes // 1024} KiB"
    facts["L2 cache per core"] = f"{target.l2_bytes // 1024} KiB"
    if known.get("l3_bytes"):
        facts["L3 cache"] = f"{int(known['l3_bytes']) >> 20} MiB"
    for name, rate in sorted(setup.ceilings.items()):
        unit = "GFLOP/s" if name.startswith("flops/") else "GB/s"
        facts[f"measured {name}"] = f"{rate / 1e9:.3g} {unit}"
    return facts
