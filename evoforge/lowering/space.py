"""The space of schedules of one task: sample, change, cross and aim genomes, render them.

A genome is a flat JSON object (see `schedule` for the genes); genes at their plain value are left
out, so the empty genome is the plain schedule. Strategies weigh choices by ``gene=value``
(``stream=stream``, ``placement=row``, ``prefetch=next``, ``tile=2``, …) and cells by ``axis=level``.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from evoforge.core import Cell, Params, Strategy
from evoforge.lowering import rewrites
from evoforge.lowering.contraction import find_contraction
from evoforge.lowering.cost import signature_of, trace_signature
from evoforge.lowering.cpp import Kernel, print_kernel
from evoforge.lowering.domain import Domain, build_domain
from evoforge.lowering.implied import Machine, implied_cell
from evoforge.lowering.ir import Graph
from evoforge.lowering.regions import is_tensor_sized, make_plan, regions
from evoforge.lowering.schedule import CHOICES, Schedule, gene_name

__all__ = ["Genome", "ScheduleSpace"]

Genome = dict[str, Any]

_FEW = 4
_AXES = ("tiling", "memory", "fusion")
_LIKELY = {
    "vector": (0.85, 0.15), "unroll": (0.4, 0.6), "tile": (0.5, 0.25, 0.15, 0.1), "rows": (0.75, 0.25),
    "omp": (0.85, 0.15), "reduction": (0.85, 0.15), "contract": (0.1, 0.2, 0.3, 0.25, 0.15), "math": (0.5, 0.5),
    "prefetch": (0.35, 0.2, 0.25, 0.2), "during": (0.3, 0.35, 0.35), "stream": (0.45, 0.55),
    "placement": (0.45, 0.35, 0.2), "split": (0.8, 0.2), "rewrite": (0.6, 0.4),
}  # fmt: skip
"""How often a sample takes each value of a gene, before the strategy's weights."""


class ScheduleSpace:
    """All schedules of one task on one target.

    Args:
        graphs: one per workload; they may differ in sizes only.
        l1_bytes, l2_bytes: private caches of a core.
        vector_bytes: width of a vector register.
        threads: how many threads a kernel will be given.

    Raises:
        UnsupportedError: an operator, or a difference between workloads, that schedules do not cover.
    """

    def __init__(
        self, graphs: Sequence[Graph], *, l1_bytes: int, l2_bytes: int, vector_bytes: int, threads: int
    ) -> None:
        self.l1_bytes, self.l2_bytes = l1_bytes, l2_bytes
        self.lanes = max(4, vector_bytes // 4)
        self.threads = threads
        self.unfused = _unfused(graphs[0])
        self._machine = Machine(self.lanes, l2_bytes)
        self._whole = signature_of(graphs[0])
        self._traced = trace_signature(graphs[0], self._whole, l2_bytes) or self._whole
        self._graphs = [rewrites.unfold(graph) for graph in graphs]
        self._domains: dict[tuple[str, ...], Domain] = {}
        self._kernels: dict[str, tuple[str, Kernel]] = {}
        self._cells: dict[tuple[str, tuple[tuple[str, int], ...]], Cell] = {}
        self._genes = self._find_genes()
        self._printed({})

    # what there is to decide

    def genes(self, genome: Mapping[str, Any] | None = None) -> dict[str, tuple[str, ...]]:
        """Gene → values, the plain one first; the same for every genome of a task."""
        return dict(self._genes)

    def _domain(self, names: tuple[str, ...]) -> Domain:
        if names not in self._domains:
            self._domains[names] = build_domain([rewrites.apply(graph, list(names)) for graph in self._graphs])
        return self._domains[names]

    def _find_genes(self) -> dict[str, tuple[str, ...]]:
        domain = self._domain(())
        found: dict[str, tuple[str, ...]] = {}
        for name in rewrites.available(self._graphs[0]):
            found[f"rewrite:{name}"] = CHOICES["rewrite"]
        reduces = any(node.kind == "reduce" for node in domain.nodes)
        for gene in ("vector", "unroll", "tile", "rows", "omp", "prefetch", "during"):
            found[gene] = CHOICES[gene]
        if reduces:
            found["reduction"] = CHOICES["reduction"]
            found["math"] = CHOICES["math"]
        plan = make_plan(domain, Schedule(), self.threads)
        for nest in plan.nests:
            if find_contraction(domain, nest) is not None:
                found[f"contract:{nest.region}"] = CHOICES["contract"]
        grouped = regions(domain, plan.kept)
        for number, nodes in enumerate(grouped):
            has_reduce = any(node.kind == "reduce" for node in nodes)
            maps = [n for n in nodes if n.kind == "map" and is_tensor_sized(domain, n.axes)]
            read = {access.tensor for node in domain.nodes for access in node.reads()}
            for node in maps:
                again = any(out in read for out in node.outputs)
                if again:
                    found[f"placement:{node.name}"] = CHOICES["placement"] if has_reduce else ("inline", "root")
                for out in node.outputs:
                    if (
                        out
                        and domain.tensors[out].kind == "out"
                        and domain.tensors[out].dtype in ("f32", "f16", "bf16")
                    ):
                        found[f"stream:{out}"] = CHOICES["stream"]
            depth = sum(node.kind == "reduce" for node in nodes) + sum(f"placement:{n.name}" in found for n in maps)
            for boundary in range(1, min(depth, 6) + 1):
                found[f"split:{number}.{boundary}"] = CHOICES["split"]
        return found

    # genomes

    def default(self, rng: np.random.Generator) -> Genome:
        """The first kernel of a campaign: vectors, several at a time, everything fused."""
        return self._tidy({"unroll": "many", **dict.fromkeys(self._keys("contract"), "pack")})

    def sample(self, rng: np.random.Generator, strategy: Strategy) -> Genome:
        """A random genome; stressed cells are more likely."""
        drawn = [self._draw(rng, strategy) for _ in range(3 if strategy.stress else 1)]
        if len(drawn) == 1:
            return drawn[0]
        weights = np.array([self._stress(genome, strategy) for genome in drawn])
        if weights.sum() <= 0:
            return drawn[0]
        return drawn[int(rng.choice(len(drawn), p=weights / weights.sum()))]

    def mutate(self, genome: Mapping[str, Any], rng: np.random.Generator, strategy: Strategy) -> Genome:
        """`genome` with one or a few genes changed, such that another source comes out."""
        source = self.render(genome)
        changed = dict(genome)
        names = list(self._genes)
        for _ in range(40):
            changed = {key: value for key, value in genome.items() if key in self._genes}
            for _ in range(1 + int(rng.geometric(0.6)) - 1 or 1):
                key = names[int(rng.integers(len(names)))]
                changed[key] = self._pick(key, rng, strategy, unlike=changed.get(key, self._genes[key][0]))
            changed = self._tidy(changed)
            if self.render(changed) != source:
                break
        return changed

    def cross(self, a: Mapping[str, Any], b: Mapping[str, Any], rng: np.random.Generator, strategy: Strategy) -> Genome:
        """Every gene from either parent; a mutation of `a` where nothing new comes out."""
        parents = {self.render(a), self.render(b)}
        for _ in range(8):
            child = self._tidy(
                {key: (a if rng.random() < 0.5 else b).get(key, values[0]) for key, values in self._genes.items()}
            )
            if self.render(child) not in parents:
                return child
        return self.mutate(a, rng, strategy)

    def climb(self, genome: Mapping[str, Any], score: Callable[[Genome], float], rng: np.random.Generator) -> Genome:
        """`genome` moved uphill by `score`, gene after gene in a random order, twice. Nothing is rendered."""
        here, names = self._tidy(genome), list(self._genes)
        for _ in range(2):
            for at in rng.permutation(len(names)):
                key = names[int(at)]
                here = max((self._tidy({**here, key: value}) for value in self._genes[key]), key=score)
        return here

    def aim(
        self, cell: Cell, rng: np.random.Generator, strategy: Strategy, near: Mapping[str, Any] | None = None
    ) -> Genome | None:
        """A genome whose implied cell is `cell`, close to `near` where possible; None if none was found."""
        start = self._tidy(near) if near is not None else self._draw(rng, strategy)
        for attempt in range(6):
            genome = self._built_for(cell, start, rng, strategy)
            if self.implied_cell(genome) == cell:
                return genome
            genome = self._walk(cell, genome, rng, strategy)
            if self.implied_cell(genome) == cell:
                return genome
            if cell in self._survey:
                return self._like(genome, cell, rng)
            start = self._draw(rng, strategy) if attempt % 2 else self.default(rng)
        return None

    def reachable(self) -> frozenset[Cell]:
        """The implied cells of constructed and of random genomes, always the same ones."""
        return frozenset(self._survey)

    @cached_property
    def _survey(self) -> dict[Cell, list[Genome]]:
        """The genomes met on the way to every cell that constructed and random ones reach."""
        strategy, rng = Strategy(), np.random.default_rng(0)
        found: dict[Cell, list[Genome]] = {}

        def note(genome: Genome) -> None:
            cell = found.setdefault(self.implied_cell(genome), [])
            if genome not in cell:
                cell.append(genome)

        for _ in range(40):
            note(self._draw(rng, strategy))
        for cell in itertools.product(range(4), repeat=3):
            if cell not in found:
                note(self._built_for(cell, self.default(rng), rng, strategy))
        levels = [sorted({cell[axis] for cell in found}) for axis in range(3)]
        for tiling, memory, fusion in itertools.product(*levels):
            cell = (tiling, memory, fusion)
            if cell not in found:
                start = self._built_for(cell, self._draw(rng, strategy), rng, strategy)
                note(self._walk(cell, start, rng, strategy))
        return found

    # what a genome becomes

    def render(self, genome: Mapping[str, Any]) -> str:
        """The C++ source; the same genome always gives the same text."""
        return self._printed(genome)[0]

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

    def _printed(self, genome: Mapping[str, Any]) -> tuple[str, Kernel]:
        key = json.dumps(self._tidy(genome), sort_keys=True)
        if key not in self._kernels:
            schedule = Schedule.from_genome(self._tidy(genome))
            domain = self._domain(schedule.rewrites)
            plan = make_plan(domain, schedule, self.threads)
            if len(self._kernels) > 4096:
                self._kernels.clear()
            self._kernels[key] = print_kernel(
                domain, plan, schedule, self._title(), _notes(self._tidy(genome)), self.lanes
            )
        return self._kernels[key]

    def _title(self) -> str:
        words = dict.fromkeys(
            stage.origin.split(".")[1] if "." in stage.origin else stage.origin for stage in self._graphs[0].stages
        )
        return "Computes " + ", ".join(word for word in words if word and word != "copy") + "."

    def _tidy(self, genome: Mapping[str, Any]) -> Genome:
        """Known genes that are not plain, in the space's order."""
        return (
            {
                key: genome[key]
                for key, values in self._genes.items()
                if key in genome and genome[key] in values and genome[key] != values[0]
            }
            if hasattr(self, "_genes")
            else dict(genome)
        )

    # choices

    def _weights(self, key: str, strategy: Strategy) -> np.ndarray[Any, np.dtype[np.float64]]:
        gene, values = gene_name(key), self._genes[key]
        likely = dict(zip(CHOICES[gene], _LIKELY[gene], strict=True))
        weights = np.array([likely[v] * strategy.priors.get(f"{gene}={v}", 1.0) for v in values])
        return weights if weights.sum() > 0 else np.ones(len(values))

    def _pick(self, key: str, rng: np.random.Generator, strategy: Strategy, unlike: str | None = None) -> str:
        values, weights = self._genes[key], self._weights(key, strategy)
        if unlike is not None:
            weights = np.array([0.0 if v == unlike else w for v, w in zip(values, weights, strict=True)])
            if weights.sum() <= 0:
                weights = np.array([float(v != unlike) for v in values])
        return values[int(rng.choice(len(values), p=weights / weights.sum()))]

    def _draw(self, rng: np.random.Generator, strategy: Strategy) -> Genome:
        return self._tidy({key: self._pick(key, rng, strategy) for key in self._genes})

    def _stress(self, genome: Genome, strategy: Strategy) -> float:
        weight = 1.0
        for axis, level in zip(_AXES, self.implied_cell(genome), strict=True):
            weight *= strategy.stress.get(f"{axis}={level}", 1.0)
        return weight

    # aiming

    def _built_for(self, cell: Cell, start: Genome, rng: np.random.Generator, strategy: Strategy) -> Genome:
        """Sets the genes that a cell asks for; the rest stays as it is in `start`."""
        genome = dict(start)
        tiling, memory, fusion = cell
        self._set_memory(genome, memory, rng, strategy)
        self._set_fusion(genome, fusion, memory, rng, strategy)
        scalar = genome.get("vector") == "scalar"
        unroll = not scalar and tiling > 0 and (tiling == 3 or rng.random() < 0.6)
        genome["unroll"] = "many" if unroll else "one"
        genome["rows"] = "one"
        rest = tiling - unroll
        if rest > 0 and rng.random() < 0.3 and genome.get("reduction", "direct") == "direct":
            genome["rows"], rest = "block", rest - 1
        genome["tile"] = str(max(rest, 0))
        genome = self._tidy(genome)
        got = self.implied_cell(genome)[0]
        for tile in ("0", "1", "2", "3"):
            if got == tiling:
                break
            trial = self._tidy({**genome, "tile": tile})
            if self.implied_cell(trial)[0] == tiling:
                return trial
        return genome

    def _keys(self, gene: str) -> list[str]:
        return [key for key in self._genes if gene_name(key) == gene]

    def _set_memory(self, genome: Genome, memory: int, rng: np.random.Generator, strategy: Strategy) -> None:
        streams = self._keys("stream")
        genome["vector"] = "scalar" if memory == 0 else "vector" if memory in (1, 3) else genome.get("vector", "vector")
        for key in streams:
            genome[key] = "plain"
        if memory == 3 and streams:
            for key in streams:
                genome[key] = self._pick(key, rng, strategy)
            genome[streams[int(rng.integers(len(streams)))]] = "stream"
        if memory < 2:
            genome["prefetch"] = "none"
            for key in self._keys("placement"):
                if genome.get(key) == "row":
                    genome[key] = "inline"
        elif memory == 2:
            rows = [key for key in self._keys("placement") if "row" in self._genes[key]]
            if rows and rng.random() < 0.4:
                genome[rows[int(rng.integers(len(rows)))]] = "row"
            elif genome.get("prefetch", "none") == "none":
                genome["prefetch"] = self._pick("prefetch", rng, strategy, unlike="none")

    def _set_fusion(
        self, genome: Genome, fusion: int, memory: int, rng: np.random.Generator, strategy: Strategy
    ) -> None:
        placements = self._keys("placement")
        tmps = [key for key in placements if not self._is_out(key)]
        if fusion >= 2:
            for key in placements:
                if genome.get(key) == "root":
                    genome[key] = "inline"
            splits = self._keys("split")
            for key in splits:
                genome[key] = "fused"
            genome["reduction"] = "direct"
            if fusion == 2 and splits:
                if rng.random() < 0.2 and "reduction" in self._genes:
                    genome["reduction"] = "chunks"
                else:
                    genome[splits[int(rng.integers(max(1, (len(splits) + 1) // 2)))]] = "split"
                for key in tmps:  # a row buffer does not cross from one nest to the next
                    if genome.get(key) == "row" and rng.random() < 0.5:
                        genome[key] = "inline"
            return
        for key in tmps:
            genome[key] = "root"
        if fusion == 1 and len(tmps) > 1:
            keep = tmps[int(rng.integers(len(tmps)))]
            for key in tmps:
                if key != keep:
                    genome[key] = "root" if len(tmps) > 2 and rng.random() < 0.3 else "inline"
            genome[keep] = "root"

    def _is_out(self, key: str) -> bool:
        node = next((n for n in self._domain(()).nodes if n.name == key.partition(":")[2]), None)
        return node is not None and any(self._domain(()).tensors[o].kind == "out" for o in node.outputs if o)

    def _like(self, genome: Genome, cell: Cell, rng: np.random.Generator) -> Genome:
        """One of the genomes of `cell` in the survey that differ from `genome` in the fewest genes."""

        def differences(one: Genome) -> int:
            return sum(one.get(key) != genome.get(key) for key in self._genes)

        near = sorted(self._survey[cell], key=differences)[:_FEW]
        return dict(near[int(rng.integers(len(near)))])

    def _walk(
        self, cell: Cell, genome: Genome, rng: np.random.Generator, strategy: Strategy, steps: int = 12
    ) -> Genome:
        """Changes one gene at a time for as long as that brings the implied cell closer, or not away."""

        def distance(one: Genome) -> int:
            return sum(abs(a - b) for a, b in zip(self.implied_cell(one), cell, strict=True))

        here = distance(genome)
        names = list(self._genes)
        for _ in range(steps):
            if here == 0:
                break
            key = names[int(rng.integers(len(names)))]
            trial = self._tidy(
                {**genome, key: self._pick(key, rng, strategy, unlike=genome.get(key, self._genes[key][0]))}
            )
            there = distance(trial)
            if there <= here:
                genome, here = trial, there
        return genome


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
