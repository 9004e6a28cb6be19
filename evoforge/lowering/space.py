"""The space of schedules of one task: sample, change, cross and aim genomes, render them.

A genome is a flat JSON object (see `schedule` for the genes); genes at their plain value are left
out, so the empty genome is the plain schedule. Strategies weigh choices by ``gene=value``
(``stream=stream``, ``placement=row``, ``prefetch=next``, ``tile=2``, …) and cells by ``axis=level``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from evoforge.core import Cell, ParameterSpace, Params, Strategy
from evoforge.errors import UnsupportedError
from evoforge.lowering import rewrites
from evoforge.lowering.aiming import Aiming
from evoforge.lowering.cost import flops, signature_of, trace_signature
from evoforge.lowering.cpp import Kernel, print_kernel
from evoforge.lowering.domain import Domain
from evoforge.lowering.genes import Genes, Genome
from evoforge.lowering.implied import Machine, implied_cell
from evoforge.lowering.ir import Graph
from evoforge.lowering.planner import make_plan
from evoforge.lowering.schedule import Schedule, gene_name
from evoforge.lowering.unify import build_domain

__all__ = ["Genome", "ScheduleSpace"]

_AXES = ("tiling", "memory", "fusion")
_BUSY = 2.0  # operations per byte of the tensors beyond which memory waits for scalars (a core: 5 a ns; 5 to 20 bytes)


class ScheduleSpace:
    """All schedules of one task on one target.

    Args:
        graphs: one per workload; where they differ in more than sizes, kernels have a form for each.
        l1_bytes, l2_bytes: private caches of a core.
        vector_bytes: width of a vector register.
        threads: how many threads a kernel will be given.
        matrix_parts: of how many brain floats a float is made for the matrix unit (`matrix_parts_of`); 0: without.
        finite: whether NaN and infinities in inputs need not come out where they do in the reference.

    Raises:
        UnsupportedError: an operator that schedules do not cover, or workloads that a kernel cannot tell apart.
    """

    def __init__(
        self,
        graphs: Sequence[Graph],
        *,
        l1_bytes: int,
        l2_bytes: int,
        vector_bytes: int,
        threads: int,
        matrix_parts: int = 0,
        finite: bool = True,
    ) -> None:
        self._finite = finite
        self.l1_bytes, self.l2_bytes = l1_bytes, l2_bytes
        self.lanes = max(4, vector_bytes // 4)
        self.threads, self.matrix_parts = threads, matrix_parts
        self._machine = Machine(self.lanes, l2_bytes)
        self._forms: dict[tuple[str, ...], tuple[Domain, ...]] = {}
        self._kernels: dict[str, tuple[str, Kernel]] = {}
        self._cells: dict[tuple[str, tuple[tuple[str, int], ...]], Cell] = {}
        try:
            self._open(graphs)
        except RecursionError:
            raise UnsupportedError(
                "expected operators that a kernel can be made of without nesting thousands deep, got a longer chain of "
                f"{_origins(graphs[0])}; make a shorter loop of it, or start from a kernel of your own with --from"
            ) from None

    def _open(self, graphs: Sequence[Graph]) -> None:
        self.unfused = _unfused(graphs[0])
        self._whole = signature_of(graphs[0])
        self._traced = trace_signature(graphs[0], self._whole, self.l2_bytes) or self._whole
        self._graphs = [rewrites.unfold(graph) for graph in graphs]
        nbytes = self._whole.input_bytes + self._whole.constant_bytes + self._whole.output_bytes
        self._busy = sum(flops(graphs[0]).values()) > _BUSY * nbytes
        self._genes = Genes(
            self._domains(())[0], self._rewrites(), self.threads, self.l1_bytes, self.l2_bytes, bool(self.matrix_parts)
        )
        self._aiming = Aiming(self._genes, self.implied_cell, self._parameters)
        self._printed({})

    # what there is to decide

    def genes(self, genome: Mapping[str, Any] | None = None) -> dict[str, tuple[str, ...]]:
        """Gene → values, the plain one first; the same for every genome of a task."""
        return dict(self._genes.values)

    def _rewrites(self) -> list[str]:
        """Those that change the graphs."""
        found = []
        for name in rewrites.available(self._graphs[0]):
            if not self._finite and name in rewrites.FINITE:
                continue
            with suppress(UnsupportedError):
                self._domains((name,))
                found.append(name)
        return found

    def _domains(self, names: tuple[str, ...]) -> tuple[Domain, ...]:
        """One domain for all workloads; one for each where they differ in more than sizes."""
        if names not in self._forms:
            graphs = [rewrites.apply(graph, list(names)) for graph in self._graphs]
            try:
                self._forms[names] = (build_domain(graphs),)
            except UnsupportedError:
                if len(graphs) == 1:
                    raise
                self._forms[names] = tuple(build_domain([graph]) for graph in graphs)
        return self._forms[names]

    # genomes

    def default(self) -> Genome:
        """The first kernel of a campaign."""
        return self._genes.default()

    def textbook(self) -> list[Genome]:
        """Genomes to start from, the default first; no two of them are one kernel."""
        kernels: dict[str, Genome] = {}
        for genome in self._genes.textbook():
            kernels.setdefault(self._text(genome), genome)
        return list(kernels.values())

    def sample(self, rng: np.random.Generator, strategy: Strategy) -> Genome:
        """A random genome; stressed cells are more likely."""
        drawn = [self._genes.draw(rng, strategy) for _ in range(3 if strategy.stress else 1)]
        if len(drawn) == 1:
            return drawn[0]
        weights = np.array([self._stress(genome, strategy) for genome in drawn])
        if weights.sum() <= 0:
            return drawn[0]
        return drawn[int(rng.choice(len(drawn), p=weights / weights.sum()))]

    def mutate(self, genome: Mapping[str, Any], rng: np.random.Generator, strategy: Strategy) -> Genome:
        """`genome` with one or a few genes changed, such that another kernel comes out."""
        text = self._text(genome)
        changed = dict(genome)
        names = list(self._genes.values)
        for _ in range(40):
            changed = {key: value for key, value in genome.items() if key in self._genes.values}
            for _ in range(int(rng.geometric(0.6))):
                key = names[int(rng.integers(len(names)))]
                changed[key] = self._genes.pick(key, rng, strategy, unlike=changed.get(key, self._genes.values[key][0]))
            changed = self._genes.tidy(changed)
            if self._text(changed) != text:
                break
        return changed

    def cross(self, a: Mapping[str, Any], b: Mapping[str, Any], rng: np.random.Generator, strategy: Strategy) -> Genome:
        """Every gene from either parent; a mutation of `a` where nothing new comes out."""
        parents = {self._text(a), self._text(b)}
        for _ in range(8):
            child = self._genes.tidy(
                {
                    key: (a if rng.random() < 0.5 else b).get(key, values[0])
                    for key, values in self._genes.values.items()
                }
            )
            if self._text(child) not in parents:
                return child
        return self.mutate(a, rng, strategy)

    def climb(
        self,
        genome: Mapping[str, Any],
        scores: Callable[[Sequence[Genome]], npt.NDArray[np.float64]],
        rng: np.random.Generator,
    ) -> Genome:
        """`genome` moved uphill by `scores`, gene after gene in a random order, twice. Nothing is rendered."""
        here, names = self._genes.tidy(genome), list(self._genes.values)
        for _ in range(2):
            for at in rng.permutation(len(names)):
                key = names[int(at)]
                options = [self._genes.tidy({**here, key: value}) for value in self._genes.values[key]]
                here = options[int(np.argmax(scores(options)))]
        return here

    def aim(
        self,
        cell: Cell,
        rng: np.random.Generator,
        strategy: Strategy,
        near: Mapping[str, Any] | None = None,
        params: Params | None = None,
    ) -> tuple[Genome, Params] | None:
        """A genome, and values of its parameters, whose implied cell is `cell`; None if none was found.

        Close to `near` where possible, and at what it takes over of `params` if that serves. Values left out are the
        defaults.
        """
        return self._aiming.aim(cell, rng, strategy, near, params)

    def reachable(self) -> frozenset[Cell]:
        """The implied cells of constructed and of random genomes, at defaults and at random values, always the same."""
        return self._aiming.reachable()

    def handicaps(self) -> list[tuple[Genome, float]]:
        """What decisions are known to cost, log2, before anything is measured.

        A contraction in scalars does one lane's work an instruction, and reads anew for each what a block keeps in
        registers. Nothing is known where memory is what there is to wait for.
        """
        contracts = any(gene_name(key) == "contract" for key in self._genes.values)
        return [({"vector": "scalar"}, -math.log2(self.lanes) - 1.0)] if contracts and self._busy else []

    # what a genome becomes

    def render(self, genome: Mapping[str, Any]) -> str:
        """The C++ source; the same genome always gives the same text."""
        return self._printed(genome)[0]

    def _text(self, genome: Mapping[str, Any]) -> str:
        """The source without the schedule in words, which also names genes that are void here."""
        lines = self.render(genome).splitlines()
        return "\n".join(line for line in lines if line.startswith("// evoforge:") or not line.startswith("//"))

    def implied_cell(self, genome: Mapping[str, Any], params: Params | None = None) -> Cell:
        """The cell that the facts should find at `params` (default: the declared defaults)."""
        kernel = self._printed(genome)[1]
        values = {name: declared.default for name, declared in kernel.parameters.items()}
        values |= {name: value for name, value in (params or {}).items() if name in values}
        # Genes that are void here print the same loops.
        key = ("\n".join(kernel.body), tuple(sorted(values.items())))
        if key not in self._cells:
            if len(self._cells) > 4096:
                self._cells.clear()
            self._cells[key] = implied_cell(
                kernel, values, self._machine, unfused=self.unfused, whole=self._whole, traced=self._traced
            )
        return self._cells[key]

    def _parameters(self, genome: Mapping[str, Any]) -> ParameterSpace:
        return ParameterSpace.parse(self.render(genome))

    def _printed(self, genome: Mapping[str, Any]) -> tuple[str, Kernel]:
        key = json.dumps(self._genes.tidy(genome), sort_keys=True)
        if key not in self._kernels:
            schedule = Schedule.from_genome(self._genes.tidy(genome))
            domains = self._domains(schedule.rewrites)
            forms = [(domain, make_plan(domain, schedule, self.threads)) for domain in domains]
            if len(self._kernels) > 4096:
                self._kernels.clear()
            self._kernels[key] = print_kernel(
                forms, schedule, self._title(), _notes(self._genes.tidy(genome)), self.lanes, self.matrix_parts
            )
        return self._kernels[key]

    def _title(self) -> str:
        return f"Computes {_origins(self._graphs[0])}."

    # choices

    def _stress(self, genome: Genome, strategy: Strategy) -> float:
        weight = 1.0
        for axis, level in zip(_AXES, self.implied_cell(genome), strict=True):
            weight *= strategy.stress.get(f"{axis}={level}", 1.0)
        return weight

    # aiming


def _origins(graph: Graph) -> str:
    """The operators that a graph is made of, each once."""
    words = [stage.origin.split(".")[1] if "." in stage.origin else stage.origin for stage in graph.stages]
    return ", ".join(word for word in dict.fromkeys(words) if word and word != "copy")


def _unfused(graph: Graph) -> int:
    """Tensor-sized temporaries of the graph as it was captured: one per stage that is not an output."""
    largest = max((t.numel for t in graph.tensors.values() if t.kind != "tmp"), default=1)
    return sum(t.kind == "tmp" and 2 * t.numel >= largest for t in graph.tensors.values())


def _notes(genome: Mapping[str, Any]) -> list[str]:
    """The schedule in words."""
    if not genome:
        return ["Schedule: plain vectors."]
    words = [f"{key} {value}" for key, value in genome.items()]
    lines, line = [], "Schedule:"
    for position, word in enumerate(words):
        piece = f" {word}{',' if position + 1 < len(words) else '.'}"
        if len(line) + len(piece) > 112:
            lines.append(line)
            line = "  "
        line += piece
    return [*lines, line]
