"""Where the loops of one nest are: which axes collapse into which loops, what can be a vector."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import TYPE_CHECKING

from evoforge.lowering.cpp_expr import Value
from evoforge.lowering.cpp_names import Group, collapse, order_axes
from evoforge.lowering.domain import Access, Node, Size
from evoforge.lowering.index import names as axes_of
from evoforge.lowering.ir import Cast, FloorDiv, Guard, Indirect, Mod, Position, nodes
from evoforge.lowering.lanes import INTS, can_vectorise, computed, is_exact, is_plain, is_truth, is_whole
from evoforge.lowering.nests import Nest, Pass
from evoforge.lowering.simplify import dtype_of

if TYPE_CHECKING:
    from evoforge.lowering.cpp import Kernel

__all__ = ["Layout", "Loop"]

_OUTER = (("row", "rows"), ("batch", "batches"), ("group", "groups"), ("part", "parts"), ("slab", "slabs"))
_INNER = (("line", "lines"), ("plane", "planes"), ("volume", "volumes"))


def _named(words: tuple[tuple[str, str], ...], last: str) -> Iterator[tuple[str, str]]:
    """(variable, name of its size) for loops from the inside out; numbered where words end."""
    return chain(words, ((f"{last}{k}", f"{last}s{k}") for k in count(2)))


@dataclass(frozen=True)
class Loop:
    """A loop over a group of axes: variable, name of its size, sizes per workload."""

    group: Group
    var: str
    size: str
    extent: int


class Layout:
    """The loops of one nest; what is printed later shares this state."""

    def __init__(self, kernel: Kernel, nest: Nest, lanes: int) -> None:
        self.kernel, self.nest, self.lanes = kernel, nest, lanes
        self.domain, self.schedule, self.names = kernel.domain, kernel.schedule, kernel.names
        self.known: dict[str, Value] = {}
        self.reciprocals: dict[str, str] = {}
        self.depth = 1
        self.heads: list[Node] = []
        self.accumulated: dict[str, str] = {}
        self.long: list[str] = []  # accumulators of the present pass that are folded every so many `pushes`
        self.pushes = ""
        self.row_buffers: dict[str, str] = {}
        self.turned: dict[str, Access] = {}  # tensors that are read from a buffer of rows, and where in a row
        self.waiting: dict[str, str] = {}
        self.beside: dict[str, list[str]] = {}
        self.hoisted: dict[tuple[str, str], Value] = {}
        nodes = [n for one in nest.passes for n in (*one.heads, *one.nodes, *one.row_maps)]
        self.apart = set().union(*(_atoms(node) for node in nodes)) if nodes else set()
        self.chained = nest.chain.axes if nest.chain else ()
        ends = nest.chain.ends if nest.chain else {}
        self.ends = {axis: f"{self.names.size((axis,), 'cols')}_seen" for axis in ends}
        self.apart |= {*self.chained, *self.ends}
        self.axes = {a for one in nest.passes for n in one.nodes for a in (*n.axes, *n.reduction)} | set(nest.rows)
        self.rows = self._rows()
        self.vector = self.is_vector(nest.passes) if nest.columns and nest.reduces else False

    # loops

    def _rows(self) -> list[Loop]:
        """The outer loops: the rows, or in a nest without reductions all axes but the lane's."""
        nest, accesses = self.nest, [a for one in self.nest.passes for a in self.accesses(one)]
        lane: Group = (nest.lane,) if nest.lane else ()
        if nest.reduces:
            axes = [a for a in nest.rows if not (nest.columns and a == nest.lane)]
            groups = collapse(self.domain, order_axes(self.domain, axes, accesses), accesses, self.apart)
            if nest.columns:
                both = collapse(self.domain, order_axes(self.domain, nest.rows, accesses), accesses, self.apart)
                if both and nest.lane in both[-1]:
                    groups, lane = both[:-1], both[-1]
        else:
            groups = collapse(self.domain, order_axes(self.domain, self.axes, accesses), accesses, self.apart)
            if groups and nest.lane in groups[-1]:
                groups, lane = groups[:-1], groups[-1]
            else:
                mine = next((g for g in groups if nest.lane in g), ())
                groups = [g for g in groups if g is not mine]
                if mine and mine[-1] == nest.lane:
                    lane = mine
                else:
                    groups += [(a,) for a in mine if a != nest.lane]
        self.lane_group = lane
        groups = [*(g for g in groups if g[-1] not in self.chained), *((a,) for a in self.chained)]
        loops = []
        for group, (var, size) in zip(reversed(groups), _named(_OUTER, "outer"), strict=False):
            loops.append(Loop(group, var, self.names.size(group, size), self.extent(group)))
        return [*reversed(loops[: len(self.chained)]), *reversed(loops[len(self.chained) :])]

    def row_heads(self, loops: Sequence[Loop]) -> list[str]:
        """Those of `loops` that are not around the nest: of a chain's rows it walks one block."""
        heads = []
        for loop in loops:
            start, end = self.bounds(loop)
            if loop.group[-1] not in self.chained[:-1]:
                heads.append(f"for (int64_t {loop.var} = {start}; {loop.var} < {end}; ++{loop.var})")
        return heads

    def bounds(self, loop: Loop) -> tuple[str, str]:
        """Where a loop over rows starts and ends."""
        return ("lower", "upper") if self.chained and loop.group == self.chained[-1:] else ("0", loop.size)

    def end(self, loop: Loop) -> str:
        """Where a loop over inner axes ends: in a chain with a mask, behind what a block of rows can see."""
        return self.ends.get(loop.group[-1], loop.size)

    def extent(self, group: Sequence[str]) -> int:
        return min(self.domain.numel(group).values)

    def inner_loops(self, one: Pass) -> list[Loop]:
        """The loops of a sweep, the lane's last."""
        nest, accesses = self.nest, self.accesses(one)
        outer = {a for loop in self.rows for a in loop.group}
        mine = {a for n in one.nodes for a in (*n.axes, *n.reduction)} - outer
        if nest.columns and nest.reduces:
            mine -= set(self.lane_group)
            groups = collapse(self.domain, order_axes(self.domain, mine, accesses), accesses, self.apart)
            return [
                Loop(g, v if k else "step", self.names.size(g, s if k else "steps"), self.extent(g))
                for k, (g, (v, s)) in reversed(
                    list(enumerate(zip(reversed(groups), _named((("step", "steps"), *_INNER), "inner"), strict=False)))
                )
            ]
        if not nest.reduces:
            return [self.lane_loop(self.lane_group)] if self.lane_group else []
        groups = collapse(self.domain, order_axes(self.domain, mine, accesses), accesses, self.apart)
        fast = max(reversed(groups), key=lambda g: self._neighbours(accesses, g), default=())
        groups = [g for g in groups if g != fast]
        loops = [
            Loop(g, v, self.names.size(g, s), self.extent(g))
            for g, (v, s) in zip(reversed(groups), _named(_INNER, "inner"), strict=False)
        ][::-1]
        return [*loops, self.lane_loop(fast)] if fast else loops

    def _neighbours(self, accesses: Sequence[Access], group: Group) -> int:
        """Elements of the largest access whose neighbours in memory are neighbours along `group`."""
        found = [a for a in accesses if a.step(group[-1]) == 1]
        return max((self.extent(tuple(a.axes)) for a in found), default=0)

    def lane_loop(self, group: Group) -> Loop:
        return Loop(group, "col", self.names.size(group, "cols"), self.extent(group))

    def accesses(self, one: Pass) -> list[Access]:
        """Every access to memory of a pass, row buffers as the positions in a row."""
        found: list[Access] = []
        for node in (*one.heads, *one.nodes, *one.row_maps):
            for access in node.reads():
                how = one.reads.get(access.tensor, "memory")
                if how == "memory":
                    found.append(access)
                elif how == "row":
                    found.append(self.in_row(access.tensor))
            if node.monoid in ("argmax", "argmin"):
                found.append(self.position(node))
        for tensor, how in one.stores:
            producer = self.domain.producer(tensor)
            assert producer is not None
            found.append(producer.write if how == "memory" else self.in_row(tensor))
        for tensor in one.row_stores:
            producer = self.domain.producer(tensor)
            assert producer is not None
            found.append(producer.write)
        return found

    def in_row(self, tensor: str) -> Access:
        if tensor in self.turned:
            return self.turned[tensor]
        producer = self.domain.producer(tensor)
        assert producer is not None
        outer = set(self.nest.rows)
        step = Size((), (1,) * self.domain.workloads)
        terms = []
        for name in reversed([a for a in producer.axes if a not in outer]):
            terms.append((name, step))
            step = step * self.domain.extents[name]
        return Access(tensor, tuple(reversed(terms)), 0)

    def position(self, node: Node) -> Access:
        step = Size((), (1,) * self.domain.workloads)
        terms = []
        for name in reversed(node.reduction):
            terms.append((name, step))
            step = step * self.domain.extents[name]
        return Access("", tuple(reversed(terms)), 0)

    # vectors

    def is_vector(self, passes: Sequence[Pass]) -> bool:
        if not self.schedule.vector or not self.nest.lane:
            return False
        tensors = self.domain.tensors
        for one in passes:
            lane = self.lane_of(one)
            if not lane:
                return False
            for node in (
                *one.nodes,
                *(one.heads if self.nest.columns else ()),
                *(one.row_maps if self.nest.columns else ()),
            ):
                stored = any(o in [t for t, _ in one.stores] for o in node.outputs)
                whole = self._is_whole(node, lane, stored)
                if not whole and not can_vectorise(node.body, lane, node, tensors):
                    return False
                if node.kind == "reduce" and not self._vector_reduce(node, lane):
                    return False
                if node.kind in ("map", "scan") and lane in node.axes:
                    real = all(tensors[o].dtype in ("f32", "f16", "bf16", "bool") for o in node.outputs if o)
                    if not whole and not real:
                        return False
                    if stored and node.write.step(lane) != self.nest.interleaved:
                        return False
            for tensor, how in one.stores:
                if how == "row" and not self.nest.columns and self.in_row(tensor).step(lane) != 1:
                    return False
            if self.nest.columns and not all(self._stores_lanes(tensor, lane) for tensor in one.row_stores):
                return False
        return True

    def written(self, tensor: str) -> Access:
        producer = self.domain.producer(tensor)
        assert producer is not None
        return producer.write

    def lane_of(self, one: Pass) -> str:
        if self.nest.columns or not self.nest.reduces:
            return self.lane_group[-1] if self.lane_group else ""
        loops = self.inner_loops(one)
        return loops[-1].group[-1] if loops else ""

    def _is_whole(self, node: Node, lane: str, stored: bool) -> bool:
        """Whether a stage makes whole numbers that are right in 32 bits: exact, or for who reads them here."""
        body, tensors = node.body, self.domain.tensors
        if self.counts(node, lane):
            return True
        if node.kind != "map" or lane not in axes_of(body) or not is_whole(body, lane, node, tensors):
            return False
        return is_exact(body, lane, node, tensors) or (not stored and is_plain(body, lane, node, tensors))

    def _stores_lanes(self, tensor: str, lane: str) -> bool:
        """Whether a vector of row values can be stored: reductions and what is exact."""
        node, dtype = self.domain.producer(tensor), self.domain.tensors[tensor].dtype
        assert node is not None
        if self.written(tensor).step(lane) != 1:
            return False
        if dtype in ("f32", "f16", "bf16") or node.kind == "reduce":
            return True
        return dtype == "bool" or is_exact(node.body, lane, node, self.domain.tensors)

    def counts(self, node: Node, lane: str) -> bool:
        """Whether truth values are counted, or one or all of them are asked for."""
        body, tensors = node.body, self.domain.tensors
        if node.kind != "reduce":
            return False
        if isinstance(body, Cast) and node.monoid == "sum":
            return dtype_of(body, tensors) in INTS and is_truth(body.arg, lane, node, tensors)
        return node.monoid in ("max", "min") and is_truth(body, lane, node, tensors)

    def _vector_reduce(self, node: Node, lane: str) -> bool:
        if self.counts(node, lane):
            return True
        if computed(dtype_of(node.body, self.domain.tensors)) != "f32":
            return False
        if node.monoid in ("argmax", "argmin"):
            return self.nest.columns or self.position(node).step(lane) == 1
        return True

    # printing


def _atoms(node: Node) -> set[str]:
    """Axes that appear outside linear addresses: they keep loops of their own."""
    found: set[str] = set()

    for part in nodes(node.body):
        if isinstance(part, Position | Guard | Indirect | FloorDiv | Mod):
            found.update(axes_of(part))
    for load, access in node.accesses.items():
        if access.terms is None:
            found.update(axes_of(load.index))
    return found
