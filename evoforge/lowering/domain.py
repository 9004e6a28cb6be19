"""Stages over common axes: the form of a graph that schedules are made for.

Axes of different stages that walk the same dimension become one, found by unification along the
temporaries (and inputs) that connect them, so that fusing two stages is putting them into one loop.
Axes of size 1 vanish. Where the graph has several workloads, every size is a row of values, one per
workload, with one text that is right for all of them (`EVO_SIZE(in0, 1)`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from evoforge.lowering.ir import Affine, Expr, Load, Tensor, nodes
from evoforge.lowering.stages import is_sum

__all__ = ["Access", "Domain", "Node", "Size", "aligned"]

_RANKING = ("max", "min", "argmax", "argmin", "maxsum")


@dataclass(frozen=True)
class Size:
    """A product of factors: names of axes, or C++ expressions; `values` has one entry per workload."""

    factors: tuple[str, ...]
    values: tuple[int, ...]

    def __mul__(self, other: Size) -> Size:
        values = tuple(a * b for a, b in zip(self.values, other.values, strict=True))
        return Size(tuple(f for f in (*self.factors, *other.factors) if f != "1"), values)

    @property
    def first(self) -> int:
        return self.values[0]


@dataclass(frozen=True)
class Access:
    """Where a load or store goes: Σ size · axis + const elements from the start of `tensor`.

    `terms` is None where the address is not linear in the axes; `index` then says it in full.
    """

    tensor: str
    terms: tuple[tuple[str, Size], ...] | None
    const: int
    index: tuple[Affine, ...] = ()

    def step(self, name: str) -> int | None:
        """Elements between neighbours along an axis in the first workload; None if not linear."""
        if self.terms is None:
            return None
        return next((size.first for other, size in self.terms if other == name), 0)

    @cached_property
    def axes(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.terms or ())


@dataclass(frozen=True, eq=False)  # of a domain there is one of each name: whole expressions need no comparing
class Node:
    """A stage over common axes. `accesses` maps every load of `body`; `write` is where results go.

    `axes` are those of the results: for a scan with the scanned axis, which is its `reduction` too.
    """

    name: str
    kind: str
    monoid: str | None
    axes: tuple[str, ...]
    reduction: tuple[str, ...]
    body: Expr
    outputs: tuple[str | None, ...]
    origin: str
    accesses: Mapping[Load, Access]
    write: Access
    apart: bool = False

    def reads(self) -> Sequence[Access]:
        return self._reads

    @cached_property
    def _reads(self) -> tuple[Access, ...]:
        return tuple(dict.fromkeys(self.accesses.values()))


def aligned(access: Access, producer: Node) -> bool:
    """Whether a read stands exactly where the producer wrote."""
    if access.terms is None or access.const:
        return False
    read = {name: size.values for name, size in access.terms}
    return read == {name: size.values for name, size in producer.write.terms or ()}


@dataclass(frozen=True)
class Domain:
    """A whole graph over common axes. `extents` maps an axis to its size."""

    tensors: Mapping[str, Tensor]
    nodes: tuple[Node, ...]
    extents: Mapping[str, Size]
    workloads: int
    shapes: Mapping[str, Size] = field(default_factory=dict)

    def producer(self, tensor: str) -> Node | None:
        return self._producers.get(tensor)

    def needs(self, node: Node) -> Sequence[tuple[str, Node, bool]]:
        """What a node reads of others: the tensor, who writes it, and whether it is read where it is written alone."""
        if node.name not in self._needs:
            made = [(one, found) for one in node.reads() if (found := self.producer(one.tensor)) is not None]
            apart = {one.tensor for one, producer in made if not aligned(one, producer)}
            self._needs[node.name] = [(one.tensor, found, one.tensor not in apart) for one, found in made]
        return self._needs[node.name]

    @cached_property
    def _needs(self) -> dict[str, list[tuple[str, Node, bool]]]:
        return {}

    @cached_property
    def _producers(self) -> dict[str, Node]:
        return {out: node for node in self.nodes for out in node.outputs if out}

    @cached_property
    def largest(self) -> int:
        """Elements of the largest input or output."""
        return max((t.numel for t in self.tensors.values() if t.kind != "tmp"), default=1)

    @cached_property
    def repeated(self) -> frozenset[str]:
        """Maps of more than constants that a reduction goes along for each of several of its own results."""
        moving = {name for name, tensor in self.tensors.items() if tensor.kind == "in"}
        for node in self.nodes:
            if any(access.tensor in moving for access in node.reads()):
                moving |= {out for out in node.outputs if out}
        return frozenset(
            producer.name
            for node in self.nodes
            if node.kind == "reduce"
            for tensor, producer, _ in self.needs(node)
            if producer.kind == "map" and tensor in moving
            if set(node.reduction) & set(producer.axes) and set(node.axes) - set(producer.axes)
        )

    @cached_property
    def ranked(self) -> frozenset[str]:
        """Tensors whose largest or smallest elements are sought, and what they are computed from element by element."""
        found: set[str] = set()
        waiting = [access.tensor for node in self.nodes if node.monoid in _RANKING for access in node.reads()]
        while waiting:
            producer = self.producer(waiting.pop())
            if producer is not None and producer.monoid is None and not found & set(producer.outputs):
                found |= {out for out in producer.outputs if out}
                waiting += [access.tensor for access in producer.reads()]
        return frozenset(found)

    @cached_property
    def rounded(self) -> frozenset[str]:
        """Tensors that must be rounded alike wherever they are computed: the ranked ones, and sums and differences
        that are added or subtracted again."""
        found = set(self.ranked)
        for node in self.nodes:
            for one in nodes(node.body):
                if is_sum(one):
                    found |= {arg.tensor for arg in one.args if isinstance(arg, Load) and self._is_sum(arg.tensor)}
        return frozenset(found)

    def _is_sum(self, tensor: str) -> bool:
        producer = self.producer(tensor)
        return producer is not None and is_sum(producer.body)

    def numel(self, names: Sequence[str]) -> Size:
        key = tuple(names)
        if key not in self._numels:
            self._numels[key] = self._product(key)
        return self._numels[key]

    @cached_property
    def _numels(self) -> dict[tuple[str, ...], Size]:
        return {}

    def _product(self, names: Sequence[str]) -> Size:
        total = Size((), (1,) * self.workloads)
        for name in names:
            total = total * self.extents[name]
        return total
