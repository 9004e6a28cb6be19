"""Reads beyond the edges of a tensor, from a copy that has these edges.

A convolution asks for every tap whether it lies inside of its input, and vectors at the edges need masks. Where the
edges are in memory nobody asks: the copy takes one pass, and each of its elements is read for many taps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from evoforge.lowering.index import add, axis, bounds, const, names, scale, substitute
from evoforge.lowering.ir import Affine, Axis, Graph, Guard, Load, Stage, Tensor, loads, rewrite
from evoforge.lowering.stages import extents_of, row_major

__all__ = ["padded"]

_ENOUGH = 6
"""Reads per element of a copy from which it pays: not yet at 3 and 5, at 9 it does."""


def padded(graph: Graph) -> Graph:
    """`graph` with a padded copy of every tensor that a reduction reads often, and beyond its edges."""
    tensors, stages = dict(graph.tensors), list[Stage]()
    for stage in graph.stages:
        while copy := next(filter(None, (_copy(tensors, stage, load) for load in loads(stage.body))), None):
            stage = copy.read(stage)
            stages.append(copy.stage)
            tensors[copy.name] = Tensor(copy.name, copy.shape, row_major(copy.shape), "f32", "tmp")
        stages.append(stage)
    return Graph(tensors, tuple(stages))


@dataclass(frozen=True)
class _Copy:
    """What `load` reads of a tensor of `sizes`, from `first` on in every dimension; along `dims` it has edges."""

    name: str
    load: Load
    sizes: tuple[int, ...]
    first: tuple[int, ...]
    shape: tuple[int, ...]
    dims: tuple[int, ...]
    origin: str

    @property
    def stage(self) -> Stage:
        axes = tuple(Axis(f"d{dim}", extent) for dim, extent in enumerate(self.shape))
        index = tuple(add(axis(a.name), const(first)) for a, first in zip(axes, self.first, strict=True))
        guards = tuple(guard for dim in self.dims for guard in _edges(index[dim], self.sizes[dim]))
        body = substitute(replace(self.load, index=index, guards=guards), {}, {a.name: a.extent for a in axes})
        return Stage(self.name, "map", axes, body, (self.name,), origin=self.origin, apart=True)

    def read(self, stage: Stage) -> Stage:
        """`stage`, which reads the copy."""
        known = {guard for dim in self.dims for guard in _edges(self.load.index[dim], self.sizes[dim])}
        index = tuple(add(at, const(-first)) for at, first in zip(self.load.index, self.first, strict=True))
        others = tuple(guard for guard in self.load.guards if guard not in known)
        there = replace(self.load, tensor=self.name, index=index, guards=others)

        def visit(node: Any) -> Any:
            return there if node == self.load else node

        return replace(stage, body=substitute(rewrite(stage.body, visit), {}, extents_of(stage)))


def _copy(tensors: Mapping[str, Tensor], stage: Stage, load: Load) -> _Copy | None:
    """None where there are no edges, or where it would not pay."""
    tensor, extents = tensors[load.tensor], extents_of(stage)
    if stage.kind != "reduce" or tensor.dtype != "f32" or not load.guards:
        return None
    first, shape, dims = [0] * len(tensor.shape), list(tensor.shape), list[int]()
    for dim, index in enumerate(load.index):
        low, high = bounds(index, extents)
        if math.isfinite(high - low) and any(guard in load.guards for guard in _edges(index, tensor.shape[dim])):
            dims.append(dim)
            first[dim], shape[dim] = int(low), int(high - low) + 1
    reads = math.prod(extents[name] for name in names(load.index))
    if not dims or reads < _ENOUGH * math.prod(shape):
        return None
    base = f"{next(filter(None, stage.outputs))}_padded"
    name = next(name for name in (f"{base}{number or ''}" for number in count()) if name not in tensors)
    return _Copy(name, load, tensor.shape, tuple(first), tuple(shape), tuple(dims), stage.origin)


def _edges(index: Affine, size: int) -> tuple[Guard, Guard]:
    """Holds where an index is inside of a dimension."""
    return Guard(index), Guard(add(const(size - 1), scale(index, -1)))
