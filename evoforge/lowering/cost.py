"""What a graph costs at least, and a smaller workload whose memory behaviour tells the same."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from evoforge.core import DTYPES, Signature, TensorSpec
from evoforge.lowering.idle import inside, work
from evoforge.lowering.index import bounds, from_memory, names, plain_axis
from evoforge.lowering.ir import (
    Affine,
    FloorDiv,
    Graph,
    Guard,
    Indirect,
    Load,
    Mod,
    Op,
    Position,
    Stage,
    loads,
    nodes,
)
from evoforge.lowering.orders import least_operations
from evoforge.lowering.stages import dtype_of, extents_of

__all__ = ["flops", "laid_out", "read_elements", "signature_of", "trace_signature"]

_FLOATS = ("f32", "f64")
_MOST_POINTS = 1 << 20  # of a guard's domain that are looked at one by one
_OUTPUTS_AT_ONCE = 6  # in 8 products where there are three taps; with more points too much is lost to rounding
_SMALLEST = 4  # a shrunken size
_MOST_STEPS = 1 << 26  # points of the largest stage in an instrumented run


# floating-point operations


def flops(graph: Graph) -> dict[str, float]:
    """Working dtype → floating-point operations of all stages; a transcendental counts as one.

    Distinct subexpressions of a stage count once per point of its domain, a reduction one more per
    point (two for pairs such as Welford's). Where a product is zero by its place, or nobody reads it, no work is
    counted, so padding, transposed convolutions and triangles cost what an implementation has to do; and a sum that
    slides along an axis counts as many products as minimal filtering takes for six outputs at once. Sums of sums
    count in the order that is the cheaper one (`orders`).
    """
    found: dict[str, dict[str, float]] = {}
    needed = work(graph).points
    for stage in graph.stages:
        total = found[stage.name] = defaultdict[str, float](float)
        points, share = float(math.prod(extents_of(stage).values())), needed[stage.name]
        if stage.monoid == "sum":
            share = min(share, _share_inside(stage)) * _share_of_sliding(stage)
        points *= share
        for node in _distinct(stage.body):
            dtype = dtype_of(node.args[0], graph.tensors) if node.dtype == "bool" else node.dtype
            if dtype in _FLOATS:
                total[dtype] += points
        dtype = dtype_of(stage.body, graph.tensors)
        if stage.monoid is not None and dtype in _FLOATS:
            total[dtype] += {"welford": 4, "maxsum": 3}.get(stage.monoid, 1) * points
    least = least_operations(graph, {name: sum(total.values()) for name, total in found.items()})
    whole: dict[str, float] = {}
    for name, counts in found.items():
        share = least[name] / max(sum(counts.values()), 1) if name in least else 1
        for dtype, count in counts.items():
            whole[dtype] = whole.get(dtype, 0.0) + count * share
    return whole


def _distinct(body: Any) -> set[Op]:
    return {node for node in nodes(body) if isinstance(node, Op)}


def _share_of_sliding(stage: Stage) -> float:
    """The part of the products that minimal filtering needs (Winograd 1980): m + t − 1 for m outputs of t taps."""
    share, rows, taps = 1.0, {a.name: a.extent for a in stage.axes}, {a.name: a.extent for a in stage.reduction}
    seen: set[str] = set()
    for index in (index for load in loads(stage.body) for index in load.index):
        walked = {atom: factor for factor, atom in index.terms if isinstance(atom, str)}
        row = next((name for name, factor in walked.items() if name in rows and factor == 1), None)
        tap = next((name for name in walked if name in taps), None)
        # Taps as far apart as the rows reach are the other half of a dimension that was split: nothing is read twice.
        if row is not None and tap is not None and tap not in seen and abs(walked[tap]) < rows[row]:
            seen.add(tap)
            outputs = min(rows[row], _OUTPUTS_AT_ONCE)
            share *= (outputs + taps[tap] - 1) / (outputs * taps[tap])
    return share


def _share_inside(stage: Stage) -> float:
    """The part of the domain in which every load guarded to zero is inside; 1 if too large to tell."""
    factors: list[Any] = []
    pending = [stage.body]
    while pending:  # only through products: elsewhere a zero does not make the point idle
        node = pending.pop()
        if isinstance(node, Op) and node.name == "mul":
            pending += node.args
        elif isinstance(node, Load) and node.other == 0:
            factors += node.guards
    share, extents = 1.0, extents_of(stage)
    for group in _by_common_axes(list(dict.fromkeys(factors))):
        share *= _share_of(group, extents)
    return share


def _by_common_axes(guards: list[Guard]) -> list[list[Guard]]:
    groups: list[tuple[frozenset[str], list[Guard]]] = []
    for guard in guards:
        used, members = names(guard.arg), [guard]
        for other in [group for group in groups if group[0] & used]:
            groups.remove(other)
            used, members = used | other[0], [*members, *other[1]]
        groups.append((used, members))
    return [members for _, members in groups]


def _share_of(guards: list[Guard], extents: Mapping[str, int]) -> float:
    used = sorted(set().union(*(names(guard.arg) for guard in guards)))
    size = math.prod(extents[name] for name in used)
    if size > _MOST_POINTS or size == 0 or any(from_memory(guard.arg) for guard in guards):
        return 1.0
    grid = np.meshgrid(*(np.arange(extents[name]) for name in used), indexing="ij", sparse=True)
    held = inside(guards, dict(zip(used, grid, strict=True)))
    return float(np.broadcast_to(held, [extents[name] for name in used]).mean())


# a smaller workload

Node = tuple[str, str, Any]


@dataclass
class _Classes:
    """Dimensions and axes that must have the same size, as a union-find forest."""

    parent: dict[Node, Node] = field(default_factory=dict)
    size: dict[Node, int] = field(default_factory=dict)
    pinned: set[Node] = field(default_factory=set)
    reduced: set[Node] = field(default_factory=set)

    def add(self, node: Node, size: int) -> None:
        self.parent[node] = node
        self.size[node] = size

    def root(self, node: Node) -> Node:
        while self.parent[node] != node:
            self.parent[node] = self.parent[self.parent[node]]
            node = self.parent[node]
        return node

    def link(self, a: Node, b: Node) -> None:
        if self.size[a] != self.size[b]:  # part of a dimension: both keep their sizes
            self.pinned |= {a, b}
            return
        self.parent[self.root(a)] = self.root(b)

    def roots_of(self, nodes: set[Node]) -> set[Node]:
        return {self.root(node) for node in nodes}


def _classes(graph: Graph) -> _Classes:
    found = _Classes()
    for tensor in graph.tensors.values():
        for dim, size in enumerate(tensor.shape):
            found.add(("tensor", tensor.name, dim), size)
    for stage in graph.stages:
        for name, extent in extents_of(stage).items():
            found.add(("stage", stage.name, name), extent)
        found.reduced |= {("stage", stage.name, a.name) for a in stage.reduction}
    for stage in graph.stages:
        order = stage.order or tuple(a.name for a in stage.axes)
        for output in stage.outputs:
            for dim, name in enumerate(order if output else ()):
                found.link(("tensor", str(output), dim), ("stage", stage.name, name))
        _link_loads(found, graph, stage)
    return found


def _link_loads(found: _Classes, graph: Graph, stage: Stage) -> None:
    for load in loads(stage.body):
        guarded = set().union(*(names(guard.arg) for guard in load.guards)) if load.guards else set()
        for dim, index in enumerate(load.index):
            node: Node = ("tensor", load.tensor, dim)
            name = plain_axis(index)
            if name is not None and name not in guarded:
                found.link(node, ("stage", stage.name, name))
            elif graph.tensors[load.tensor].shape[dim] > 1:
                outside = [atom for _, atom in index.terms if not isinstance(atom, Indirect)]
                used = {one for atom in outside for one in ({atom} if isinstance(atom, str) else names(atom))}
                found.pinned |= {node} | {("stage", stage.name, one) for one in used}
        found.pinned |= {("stage", stage.name, one) for one in guarded}
    for name in _positions(stage.body):
        found.pinned.add(("stage", stage.name, name))


def _positions(body: Any) -> set[str]:
    return set().union(*(names(node) for node in nodes(body) if isinstance(node, Position | FloorDiv | Mod)))


def signature_of(graph: Graph) -> Signature:
    """The inputs, constants and outputs of a captured graph."""

    def specs(kind: str) -> tuple[TensorSpec, ...]:
        found = (graph.tensors[name] for name in graph.names(kind))
        return tuple(TensorSpec(t.name, t.shape, t.stride, t.dtype) for t in found)

    return Signature(specs("in"), specs("cst"), specs("out"))


# traffic


def read_elements(graph: Graph) -> dict[str, int]:
    """Input or constant → elements of it that every implementation has to read; those that nothing reads are left out.

    At most what all reads touch one by one, and at most the box around them; what is read in vain does not count.
    Where an index is read from memory it may always be the same, so a table counts one row.
    """
    ones: dict[str, dict[Load, int]] = {}
    boxes: dict[str, list[tuple[int, int]]] = {}
    needed = work(graph).loads
    for stage in graph.stages:
        extents = extents_of(stage)
        for load in loads(stage.body):
            tensor = graph.tensors[load.tensor]
            if tensor.kind not in ("in", "cst"):
                continue
            ranges = [_inside(index, size, extents) for index, size in zip(load.index, tensor.shape, strict=True)]
            known = ones.setdefault(load.tensor, {})
            touched = int(needed[stage.name, load] * _touching(load, ranges, extents))
            known[load] = max(known.get(load, 0), touched)
            box = boxes.setdefault(load.tensor, ranges)
            boxes[load.tensor] = [(min(a, c), max(b, d)) for (a, b), (c, d) in zip(box, ranges, strict=True)]
    return {
        name: min(sum(known.values()), math.prod(max(high - low + 1, 0) for low, high in boxes[name]))
        for name, known in ones.items()
    }


def _inside(index: Affine, size: int, extents: Mapping[str, int]) -> tuple[int, int]:
    """The first and the last position of a dimension that an index can name."""
    low, high = bounds(index, extents)
    return int(max(low, 0)), int(min(high, size - 1))


def _touching(load: Load, ranges: Sequence[tuple[int, int]], extents: Mapping[str, int]) -> int:
    """How many elements one read touches at the most; of indices that are read from memory at the least."""
    count, axes = 1, set()
    for index, (low, high) in zip(load.index, ranges, strict=True):
        plain = [atom for _, atom in index.terms if isinstance(atom, str)]
        if math.isinf(bounds(index, extents)[1]):
            count *= math.prod(extents[axis] for axis in plain)
        else:
            plain = sorted(names(index))
            step = math.gcd(*(factor for factor, _ in index.terms)) or 1
            count *= min(max(high - low, -1) // step + 1, math.prod(extents[axis] for axis in plain))
        axes.update(plain)
    return min(count, math.prod(extents[axis] for axis in axes))


def laid_out(graph: Graph, signature: Signature) -> Graph:
    """`graph` with tensors that lie in memory as the signature says.

    torch may hand back a transposed view, and an expanded input, whose elements share places, comes without sharing.
    """
    strides = {spec.name: spec.stride for spec in (*signature.inputs, *signature.constants, *signature.outputs)}
    return Graph(
        {name: replace(t, stride=strides.get(name, t.stride)) for name, t in graph.tensors.items()}, graph.stages
    )


def trace_signature(graph: Graph, signature: Signature, l2_bytes: int) -> Signature | None:
    """A smaller signature of the same task for an instrumented run; `signature` itself if it is small.

    Sizes that no reduction runs over (batch sizes) are halved, largest first, until the largest
    tensor is about twice `l2_bytes`, so that a second sweep over it would still miss the cache.
    Rows keep their length, unless the graph has nothing but a full reduction. Contiguous tensors
    stay contiguous. None if the task cannot be made small enough to be traced.
    """
    limit = 2 * l2_bytes
    specs = {spec.name: spec for spec in (*signature.inputs, *signature.constants, *signature.outputs)}
    found = _classes(graph)
    pinned, reduced = found.roots_of(found.pinned), found.roots_of(found.reduced)
    sizes = {root: found.size[root] for root in {found.root(node) for node in found.parent}}
    free = [root for root in sizes if root not in pinned and sizes[root] >= 2 * _SMALLEST]
    batch = [root for root in free if root not in reduced]
    allowed = set(batch) if batch else set(free)
    while True:
        heavy = _too_heavy(graph, found, sizes, limit, _MOST_STEPS)
        useful = [[root for root in roots if root in allowed and sizes[root] >= 2 * _SMALLEST] for roots in heavy]
        choice = next((roots for roots in useful if roots), None)
        if choice is None:
            break
        largest = max(choice, key=lambda root: (sizes[root], repr(root)))
        sizes[largest] = -(-sizes[largest] // 2)
    if _too_heavy(graph, found, sizes, 8 * limit, 8 * _MOST_STEPS):
        return None
    return _resized(signature, specs, found, sizes)


def _too_heavy(
    graph: Graph, found: _Classes, sizes: Mapping[Node, int], most_bytes: int, most_steps: int
) -> list[set[Node]]:
    """The classes of every tensor above `most_bytes`, largest first, then of every stage that is too long."""
    tensors, stages = [], []
    for tensor in graph.tensors.values():
        roots = [found.root(("tensor", tensor.name, dim)) for dim in range(len(tensor.shape))]
        nbytes = math.prod(sizes[root] for root in roots) * DTYPES[tensor.dtype]
        if tensor.kind != "tmp" and nbytes > most_bytes:
            tensors.append((-nbytes, tensor.name, set(roots)))
    for stage in graph.stages:
        roots = [found.root(("stage", stage.name, name)) for name in extents_of(stage)]
        steps = math.prod(sizes[root] for root in roots)
        if steps > most_steps:
            stages.append((-steps, stage.name, set(roots)))
    return [roots for _, _, roots in [*sorted(tensors, key=_size_and_name), *sorted(stages, key=_size_and_name)]]


def _size_and_name(row: tuple[int, str, set[Node]]) -> tuple[int, str]:
    return row[:2]


def _resized(
    signature: Signature, specs: Mapping[str, TensorSpec], found: _Classes, sizes: Mapping[Node, int]
) -> Signature:
    def resize(spec: TensorSpec) -> TensorSpec:
        shape = tuple(
            sizes[found.root(("tensor", spec.name, dim))] if ("tensor", spec.name, dim) in found.parent else size
            for dim, size in enumerate(spec.shape)
        )
        return spec if shape == spec.shape else replace(spec, shape=shape, stride=_strides(spec, shape))

    inputs, constants, outputs = (
        tuple(resize(specs[spec.name]) for spec in group)
        for group in (signature.inputs, signature.constants, signature.outputs)
    )
    return Signature(inputs, constants, outputs)


def _strides(spec: TensorSpec, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Dense in the same order of dimensions; a stride of 0 (expanded) stays 0."""
    order = sorted(range(len(shape)), key=lambda dim: (spec.stride[dim], -dim))
    made, step = [0] * len(shape), 1
    for dim in order:
        if spec.stride[dim] or spec.shape[dim] == 1:
            made[dim] = step
            step *= max(shape[dim], 1)
    return tuple(made)
