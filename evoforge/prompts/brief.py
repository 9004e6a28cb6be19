"""What a model is told, as plain records, before any of it is words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from evoforge.core import Candidate, Cell, Evaluation

__all__ = ["BOTTLENECKS", "LLM_OPERATORS", "Attempt", "Brief", "KernelBrief", "Prompt", "Send", "TaskBrief"]

LLM_OPERATORS: Mapping[str, tuple[int, int]] = {
    "invent": (0, 0),
    "improve": (1, 1),
    "aim": (1, 1),
    "cross": (2, 2),
    "repair": (1, 1),
    "parametrise": (1, 1),
}
"""What a model can be asked for → the least and the most parents it takes."""

BOTTLENECKS = ("bandwidth", "cache", "latency", "compute", "parallel", "overhead", "correctness")
"""What can hold a kernel back: bytes from memory, reuse in caches, dependent operations, arithmetic
throughput, threads, work that is not the computation, and being wrong. Technique cards name these."""


@dataclass(frozen=True)
class TaskBrief:
    """What is the same for every request of one (task, target, language).

    `source` is the task file's text. `workloads` maps a name to its tensors in the ABI's order
    (``in0: f32[8,1024] …``). `baseline_ms` maps a workload to ``{"eager": …, "compiled": …}``,
    `bounds_ms` to the time that no kernel can go below (None: not known). `target_facts` are what a
    kernel's author must know of the hardware (cores, instruction set, cache sizes, bandwidths,
    peaks). `contract` is the source contract of `language` (`load_contract`). `busy` says that arithmetic and not
    memory is what bounds it, in most workloads.
    """

    source: str
    workloads: Mapping[str, str]
    tolerance: str
    precision: str
    language: str
    contract: str
    baseline_ms: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    bounds_ms: Mapping[str, float | None] = field(default_factory=dict)
    target_facts: Mapping[str, str] = field(default_factory=dict)
    busy: bool = False


@dataclass(frozen=True)
class KernelBrief:
    """A kernel with its verdict. `lower` is its elite's one-sided 95% bound in log2 speed-up.

    The times in `evaluation` are those of its confirmations, where it has some.

    `hypothesis` is what its author expected, `outcome` one sentence on what came of it.
    """

    candidate: Candidate
    evaluation: Evaluation | None = None
    lower: float | None = None
    cell: Cell | None = None
    hypothesis: str = ""
    outcome: str = ""


@dataclass(frozen=True)
class Attempt:
    """What was tried from the same parent before, and how it ended.

    `objective` is the log2 speed-up over the baseline, `over_parent` that over the parent: from what is claimed of
    both, where both are `confirmed`, else from the times of one trial of each.
    """

    operator: str
    hypothesis: str
    status: str
    objective: float | None = None
    over_parent: float | None = None
    reason: str = ""
    confirmed: bool = False


@dataclass(frozen=True)
class Brief:
    """One request. `attempts` are oldest first; `good` and `bad` are exemplars, the most telling first.

    `axes` maps the descriptor's axes, in the order of a cell's entries, to the names of their levels.
    `bottleneck` is one of `BOTTLENECKS`. `turn` counts how often the same was asked for before.
    """

    operator: str
    task: TaskBrief
    parents: tuple[KernelBrief, ...] = ()
    target_cell: Cell | None = None
    bottleneck: str | None = None
    attempts: tuple[Attempt, ...] = ()
    good: tuple[KernelBrief, ...] = ()
    bad: tuple[KernelBrief, ...] = ()
    axes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    turn: int = 0

    def __post_init__(self) -> None:
        if self.operator not in LLM_OPERATORS:
            raise ValueError(f"expected an operator of {', '.join(LLM_OPERATORS)}, got {self.operator!r}")
        least, most = LLM_OPERATORS[self.operator]
        if not least <= len(self.parents) <= most:
            raise ValueError(f"{self.operator} takes {least} parents, got {len(self.parents)}")
        if self.operator == "aim" and self.target_cell is None:
            raise ValueError("aim needs a target_cell, got none")
        if self.bottleneck is not None and self.bottleneck not in BOTTLENECKS:
            raise ValueError(f"expected a bottleneck of {', '.join(BOTTLENECKS)}, got {self.bottleneck!r}")
        for cell in (self.target_cell, *(kernel.cell for kernel in (*self.parents, *self.good, *self.bad))):
            if cell is not None and len(cell) != len(self.axes):
                raise ValueError(f"expected a cell of {len(self.axes)} levels, got {cell}")


@dataclass(frozen=True)
class Send:
    """What may leave the machine: the task's source, kernels' sources, facts of the hardware.

    Shapes, dtypes, times and statuses always do: nothing could be asked for without them.
    """

    task: bool = True
    kernels: bool = True
    hardware: bool = True


@dataclass(frozen=True)
class Prompt:
    """A request in words.

    `system` is the same for every request of one (task, target, language, meta-prompt), so that
    providers' prompt caches hit. `exemplars` are ids of candidates that were shown besides the
    parents, `cards` names of technique cards, `dropped` what the token budget left out.
    """

    system: str
    user: str
    exemplars: tuple[str, ...] = ()
    cards: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
