"""Genomes and parameter values for a wanted cell: built from what the cell asks for, walked towards, or met before."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from evoforge.core import Cell, ParameterSpace, Params, Strategy
from evoforge.lowering.genes import Genes, Genome

__all__ = ["Aiming", "Point"]

_FEW = 4
_SETTINGS = 3  # values that the survey draws for a genome's parameters, besides the defaults

Point = tuple[Genome, Params]
"""A genome, and values of its parameters; what they leave out is at its default."""


class Aiming:
    """Finds genomes, and values of their parameters, whose implied cell is the wanted one.

    Args:
        implied_cell: of a genome at values of all its parameters.
        parameters: those that a genome's kernel declares.
    """

    def __init__(
        self,
        genes: Genes,
        implied_cell: Callable[[Genome, Params], Cell],
        parameters: Callable[[Genome], ParameterSpace],
    ) -> None:
        self._genes = genes
        self._implied_at, self._parameters = implied_cell, parameters

    def aim(
        self,
        cell: Cell,
        rng: np.random.Generator,
        strategy: Strategy,
        near: Mapping[str, Any] | None = None,
        params: Params | None = None,
    ) -> Point | None:
        """A point whose implied cell is `cell`, close to `near` at `params` where possible; None if none was found."""
        start = self._genes.tidy(near) if near is not None else self._genes.draw(rng, strategy)
        for attempt in range(6):
            genome = self._built_for(cell, start, rng, strategy)
            for values in (params, {}) if params else ({},):
                if self._implied_cell(genome, values) == cell:
                    return genome, values
            if cell in self._survey:
                return self._varied(self._like(genome, cell, rng), cell, rng, strategy)
            genome = self._walk(cell, genome, rng, strategy)
            if self._implied_cell(genome) == cell:
                return genome, {}
            start = self._genes.draw(rng, strategy) if attempt % 2 else self._genes.default()
        return None

    def reachable(self) -> frozenset[Cell]:
        """The implied cells of constructed and of random points, always the same ones."""
        return frozenset(self._survey)

    def _implied_cell(self, genome: Genome, params: Params | None = None) -> Cell:
        """Of a genome at what it takes over of `params`."""
        return self._implied_at(genome, self._parameters(genome).inherit(params or {}))

    @cached_property
    def _survey(self) -> dict[Cell, list[Point]]:
        """The points met on the way to every cell that constructed and random ones reach."""
        strategy, rng = Strategy(), np.random.default_rng(0)
        found: dict[Cell, list[Point]] = {}

        def note(genome: Genome, params: Params | None = None) -> None:
            cell = found.setdefault(self._implied_cell(genome, params), [])
            if (genome, params or {}) not in cell:
                cell.append((genome, params or {}))

        for _ in range(40):
            note(genome := self._genes.draw(rng, strategy))
            for _ in range(_SETTINGS):
                note(genome, self._parameters(genome).draw(rng))
        for cell in itertools.product(range(4), repeat=3):
            if cell not in found:
                note(self._built_for(cell, self._genes.default(), rng, strategy))
        levels = [sorted({cell[axis] for cell in found}) for axis in range(3)]
        for tiling, memory, fusion in itertools.product(*levels):
            cell = (tiling, memory, fusion)
            if cell not in found:
                start = self._built_for(cell, self._genes.draw(rng, strategy), rng, strategy)
                note(self._walk(cell, start, rng, strategy))
        return found

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
        genome = self._genes.tidy(genome)
        got = self._implied_cell(genome)[0]
        for tile in ("0", "1", "2", "3"):
            if got == tiling:
                break
            trial = self._genes.tidy({**genome, "tile": tile})
            if self._implied_cell(trial)[0] == tiling:
                return trial
        return genome

    def _set_memory(self, genome: Genome, memory: int, rng: np.random.Generator, strategy: Strategy) -> None:
        streams = self._genes.keys("stream")
        genome["vector"] = "scalar" if memory == 0 else "vector" if memory in (1, 3) else genome.get("vector", "vector")
        for key in streams:
            genome[key] = "plain"
        if memory == 3 and streams:
            for key in streams:
                genome[key] = self._genes.pick(key, rng, strategy)
            genome[streams[int(rng.integers(len(streams)))]] = "stream"
        if memory < 2:
            genome["prefetch"] = "none"
            for key in self._genes.keys("placement"):
                if genome.get(key) == "row":
                    genome[key] = "inline"
        elif memory == 2:
            rows = [key for key in self._genes.keys("placement") if "row" in self._genes.values[key]]
            if rows and rng.random() < 0.4:
                genome[rows[int(rng.integers(len(rows)))]] = "row"
            elif genome.get("prefetch", "none") == "none":
                genome["prefetch"] = self._genes.pick("prefetch", rng, strategy, unlike="none")

    def _set_fusion(
        self, genome: Genome, fusion: int, memory: int, rng: np.random.Generator, strategy: Strategy
    ) -> None:
        placements = self._genes.keys("placement")
        tmps = [key for key in placements if not self._genes.is_out(key)]
        if fusion >= 2:
            for key in placements:
                if genome.get(key) == "root":
                    genome[key] = "inline"
            splits = self._genes.keys("split")
            for key in splits:
                genome[key] = "fused"
            genome["reduction"] = "direct"
            if chains := self._genes.keys("chain"):
                genome |= {**dict.fromkeys(chains, "chained"), **dict.fromkeys(self._genes.summed_elsewhere, "root")}
            if fusion == 2 and splits:
                if rng.random() < 0.2 and "reduction" in self._genes.values:
                    genome["reduction"] = "chunks"
                else:
                    genome[splits[int(rng.integers(max(1, (len(splits) + 1) // 2)))]] = "split"
                for key in tmps:  # a row buffer does not cross from one nest to the next
                    if genome.get(key) == "row" and rng.random() < 0.5:
                        genome[key] = "inline"
            return
        for key in tmps:
            genome[key] = "root"
        for key in self._genes.keys("chain"):
            genome[key] = "apart" if fusion == 0 or rng.random() < 0.5 else "chained"
        if fusion == 1 and len(tmps) > 1:
            keep = tmps[int(rng.integers(len(tmps)))]
            for key in tmps:
                if key != keep:
                    genome[key] = "root" if len(tmps) > 2 and rng.random() < 0.3 else "inline"
            genome[keep] = "root"

    def _like(self, genome: Genome, cell: Cell, rng: np.random.Generator) -> Point:
        """One of the points of `cell` in the survey whose genomes differ from `genome` in the fewest genes."""

        def differences(one: Point) -> int:
            return sum(one[0].get(key) != genome.get(key) for key in self._genes.values)

        near = sorted(self._survey[cell], key=differences)[:_FEW]
        return near[int(rng.integers(len(near)))]

    def _varied(self, at: Point, cell: Cell, rng: np.random.Generator, strategy: Strategy) -> Point:
        """The point a few changes further, none of which leaves the cell."""
        genome, params = at
        for _ in range(_FEW):
            trial = self._changed(genome, rng, strategy)
            if self._implied_cell(trial, params) == cell:
                genome = trial
        return genome, params

    def _changed(self, genome: Genome, rng: np.random.Generator, strategy: Strategy) -> Genome:
        """`genome` with another value of one gene."""
        names = list(self._genes.values)
        key = names[int(rng.integers(len(names)))]
        unlike = genome.get(key, self._genes.values[key][0])
        return self._genes.tidy({**genome, key: self._genes.pick(key, rng, strategy, unlike=unlike)})

    def _walk(
        self, cell: Cell, genome: Genome, rng: np.random.Generator, strategy: Strategy, steps: int = 12
    ) -> Genome:
        """Changes one gene at a time for as long as that brings the implied cell closer, or not away."""

        def distance(one: Genome) -> int:
            return sum(abs(a - b) for a, b in zip(self._implied_cell(one), cell, strict=True))

        here = distance(genome)
        for _ in range(steps):
            if here == 0:
                break
            trial = self._changed(genome, rng, strategy)
            there = distance(trial)
            if there <= here:
                genome, here = trial, there
        return genome
