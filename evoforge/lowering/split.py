"""Splitting axes of which quotients and remainders are read, e.g. one that runs over c·h·w."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from evoforge.lowering.index import add, axis, floordiv, mod, names, plain_axis, scale, substitute
from evoforge.lowering.ir import Affine, Axis, FloorDiv, Graph, Load, Mod, Stage, loads, nodes, rewrite
from evoforge.lowering.stages import extents_of, row_major

__all__ = ["split_axes", "split_outputs"]

_SPLITS = 4  # of the axes of one stage


def split_axes(graph: Graph) -> Graph:
    """Splits an axis that is only used through quotients and remainders, e.g. one over c·h·w.

    Reduction axes, and the axes of stages that write temporaries; an output keeps its own axes.
    """
    for name in [stage.name for stage in graph.stages]:
        stage = graph.by_name[name]
        fixed = any(out and graph.tensors[out].kind == "out" for out in stage.outputs) or stage.kind == "scan"
        candidates = [*(() if fixed else stage.axes), *(() if stage.kind == "scan" else stage.reduction)]
        for candidate in candidates:
            current = graph.by_name[name]
            sizes = _split_sizes(current, candidate)
            if sizes:
                graph = _split(graph, current, candidate, sizes)
    return graph


def _complex_atoms(node: Any) -> list[FloorDiv | Mod]:
    return [part for part in nodes(node) if isinstance(part, FloorDiv | Mod)]


def _split_sizes(stage: Stage, candidate: Axis) -> list[int]:
    """Sizes of the pieces, outermost first; empty if no split helps."""
    boundaries: set[int] = set()
    for atom in _complex_atoms(stage.body):
        factor = next((c for c, part in atom.arg.terms if part == candidate.name), 0)
        boundary = atom.by // math.gcd(atom.by, factor) if factor else 0
        if isinstance(atom, Mod) and factor == 0:
            inner = atom.arg.terms[0][1] if len(atom.arg.terms) == 1 else None
            if isinstance(inner, FloorDiv) and candidate.name in names(inner):
                boundary = atom.by * inner.by
        if 1 < boundary < candidate.extent and candidate.extent % boundary == 0:
            boundaries.add(boundary)
    chain = sorted(boundaries)
    if not chain or any(high % low for low, high in pairwise(chain)):
        return []
    edges = [candidate.extent, *reversed(chain), 1]
    sizes = [outer // inner for outer, inner in pairwise(edges)]
    pieces, extents = _pieces(stage, candidate, sizes)
    after = substitute(stage.body, {candidate.name: _joined(pieces)}, extents)
    return sizes if len(_complex_atoms(after)) < len(_complex_atoms(stage.body)) else []


def _pieces(stage: Stage, candidate: Axis, sizes: Sequence[int]) -> tuple[list[Axis], dict[str, int]]:
    pieces = [Axis(f"{candidate.name}_{k}", size) for k, size in enumerate(sizes)]
    extents = extents_of(stage) | {piece.name: piece.extent for piece in pieces}
    return pieces, extents


def _joined(pieces: Sequence[Axis]) -> Affine:
    steps = row_major([piece.extent for piece in pieces])
    return add(*(scale(axis(piece.name), step) for piece, step in zip(pieces, steps, strict=True)))


def _split(graph: Graph, stage: Stage, candidate: Axis, sizes: Sequence[int]) -> Graph:
    pieces, extents = _pieces(stage, candidate, sizes)
    body = substitute(stage.body, {candidate.name: _joined(pieces)}, extents)

    def spread(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(piece for a in axes for piece in (pieces if a == candidate else [a]))

    changed = replace(stage, axes=spread(stage.axes), reduction=spread(stage.reduction), body=body)
    if candidate in stage.reduction:
        return Graph(graph.tensors, tuple(changed if s is stage else s for s in graph.stages))
    at, tensors = stage.axes.index(candidate), dict(graph.tensors)
    shape = tuple(a.extent for a in changed.axes)
    for name in stage.outputs:
        if name:
            tensors[name] = replace(tensors[name], shape=shape, stride=row_major(shape))
    written = {name for name in stage.outputs if name}

    def reread(reader: Stage) -> Stage:
        inside = extents_of(reader)

        def visit(node: Any) -> Any:
            if isinstance(node, Load) and node.tensor in written:
                parts = _divided(node.index[at], sizes, inside)
                return replace(node, index=(*node.index[:at], *parts, *node.index[at + 1 :]))
            return node

        return replace(reader, body=rewrite(reader.body, visit))

    return Graph(tensors, tuple(changed if s is stage else reread(s) for s in graph.stages))


def _divided(index: Affine, sizes: Sequence[int], extents: Mapping[str, int]) -> list[Affine]:
    parts = []
    for k, step in enumerate(row_major(sizes)):
        quotient = floordiv(index, step, extents)
        parts.append(quotient if k == 0 else mod(quotient, sizes[k], extents))
    return parts


def split_outputs(graph: Graph) -> Graph:
    """Splits axes of stages that write outputs where quotients or remainders of them are read, and those of the maps
    that are read there.

    The output keeps its dimensions in `graph.tensors`; only the stage's axes change, so afterwards
    the axes are the output's elements in order but no longer its dimensions.
    """
    for name in [stage.name for stage in graph.stages]:
        for _ in range(_SPLITS):
            stage = graph.by_name[name]
            found = _splittable(stage)
            if found is None:
                break
            which, size = found
            sizes = (which.extent // size, size)
            pieces, extents = _pieces(stage, which, sizes)
            axes = tuple(piece for a in stage.axes for piece in (pieces if a == which else (a,)))
            changed = replace(stage, axes=axes, body=substitute(stage.body, {which.name: _joined(pieces)}, extents))
            graph = Graph(graph.tensors, tuple(changed if s is stage else s for s in graph.stages))
            graph = _follow(graph, name, _joined(pieces), sizes)
    return graph


def _splittable(stage: Stage) -> tuple[Axis, int] | None:
    if stage.kind == "scan":
        return None  # its outputs' dimensions have an order of their own
    sizes: list[tuple[Axis, int]] = []

    for node in nodes(stage.body):
        if isinstance(node, FloorDiv | Mod):
            name = plain_axis(node.arg)
            which = next((a for a in stage.axes if a.name == name), None)
            if which is not None and 1 < node.by < which.extent and which.extent % node.by == 0:
                sizes.append((which, node.by))
    return max(sizes, key=lambda pair: pair[1], default=None)


def _follow(graph: Graph, name: str, joined: Affine, sizes: Sequence[int]) -> Graph:
    """Splits the axes of the maps that stage `name` reads at `joined`, so that both walk the same axes."""
    for load in loads(graph.by_name[name].body):
        producer = graph.producer(load.tensor)
        if producer is None or producer.kind != "map" or graph.tensors[load.tensor].kind != "tmp":
            continue
        for at, candidate in enumerate(producer.axes):
            if (
                load.index[at] != joined
                or candidate.extent != math.prod(sizes)
                or not _divides(graph, load.tensor, at, sizes)
            ):
                continue
            pieces, _ = _pieces(producer, candidate, sizes)
            graph = _split(graph, producer, candidate, sizes)
            graph = _follow(graph, producer.name, _joined(pieces), sizes)
            return _follow(graph, name, joined, sizes)
    return graph


def _divides(graph: Graph, tensor: str, at: int, sizes: Sequence[int]) -> bool:
    """Whether all that read a tensor can walk the pieces of one of its dimensions without quotients."""
    for reader in graph.stages:
        for load in loads(reader.body):
            if load.tensor == tensor and _complex_atoms(tuple(_divided(load.index[at], sizes, extents_of(reader)))):
                return False
    return True
