"""Stages grouped into regions, which could share their outer loops.

Every reduction of a region keeps the same axes (the *rows*), every map has these axes too or is about rows alone.
Reductions of different domains are never fused.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

from evoforge.lowering.domain import Access, Domain, Node, aligned

__all__ = ["has_a_place", "is_tensor_sized", "reads_through", "regions"]


def is_tensor_sized(domain: Domain, axes: tuple[str, ...]) -> bool:
    """At least half as many elements as the largest input or output."""
    return 2 * domain.numel(axes).first >= domain.largest


def has_a_place(domain: Domain, node: Node) -> bool:
    """Whether a map's result is worth keeping: a large one, or one that a sum would compute many times over.

    Beside a layer's weights its activations are small, whatever the batch.
    """
    return is_tensor_sized(domain, node.axes) or node.name in domain.repeated


@dataclass
class _Region:
    rows: frozenset[str] | None = None
    nodes: list[Node] = field(default_factory=list)

    @property
    def axes(self) -> frozenset[str]:
        return frozenset(a for node in self.nodes for a in (*node.axes, *node.reduction))


def regions(domain: Domain, kept: Set[str] = frozenset()) -> list[list[Node]]:
    """Stages by region, in order of execution. A scan is a region of its own; `kept` tensors are not inlined."""
    found: list[_Region] = []
    home: dict[str, int] = {}
    reads = reads_through(domain, kept)
    for node in domain.nodes:
        if node.name not in reads:
            continue
        earliest = 0
        for access in reads[node.name]:
            producer = domain.producer(access.tensor)
            if producer is not None and producer.name in home:
                apart = producer.kind == "scan" or producer.apart or not aligned(access, producer)
                earliest = max(earliest, home[producer.name] + apart)
        for number in range(earliest, len(found) + 1):
            if number == len(found):
                found.append(_Region())
            if _joins(domain, found[number], node):
                break
        region = found[number]
        if node.kind == "reduce":
            region.rows = frozenset(node.axes)
        region.nodes.append(node)
        home[node.name] = number
    return [region.nodes for region in found]


def reads_through(domain: Domain, kept: Set[str]) -> dict[str, list[Access]]:
    """Node → what it reads, each once, by itself or through small maps, which are computed where they are used.

    Such maps (a scale per channel) are of inputs and constants; they are not in the result.
    """
    found: dict[str, list[Access]] = {}
    small: dict[str, list[Access]] = {}  # by tensor
    for node in domain.nodes:
        reads = [read for access in node.reads() for read in (*small.get(access.tensor, ()), access)]
        reads = list(dict.fromkeys(reads))
        if _is_small(domain, node, kept, small.keys()):
            small |= {out: reads for out in node.outputs if out}
        else:
            found[node.name] = reads
    return found


def _is_small(domain: Domain, node: Node, kept: Set[str], small: Set[str]) -> bool:
    if node.kind != "map" or any(domain.tensors[o].kind == "out" or o in kept for o in node.outputs if o):
        return False
    if has_a_place(domain, node) or any(access.terms is None for access in node.reads()):
        return False
    return all(access.tensor in small or domain.producer(access.tensor) is None for access in node.reads())


def _joins(domain: Domain, region: _Region, node: Node) -> bool:
    axes = frozenset(node.axes)
    if not region.nodes:
        return True
    if "scan" in (node.kind, region.nodes[0].kind):
        return False
    if node.kind == "reduce":
        if region.rows is not None:
            return region.rows == axes
        inside = all(frozenset(other.axes) >= axes for other in region.nodes)
        return inside and (not axes or bool(region.axes & (axes | frozenset(node.reduction))))
    if region.rows is None:
        return axes == region.axes
    return axes >= region.rows or axes <= region.rows
