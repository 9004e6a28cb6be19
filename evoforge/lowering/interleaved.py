"""Results that lie between one another: pairs that are rotated and stored side by side, planes that become channels.

Where the innermost axis of what maps write is short, vectors lie along the axis beside it: the maps are computed for
every step of the short axis, and the vectors of all steps are stored together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from evoforge.lowering.domain import Access, Domain, Node
from evoforge.lowering.index import const, names, substitute
from evoforge.lowering.ir import rewrite
from evoforge.lowering.lanes import NEAR
from evoforge.lowering.nests import Nest, Pass
from evoforge.lowering.simplify import folded

__all__ = ["interleaved"]

_STORED = ("f32", "f16", "bf16", "u8", "i8")


def interleaved(domain: Domain, nest: Nest) -> Nest:
    """A nest of maps with the steps of the short axis one after the other; the nest itself where there is none."""
    if nest.reduces or nest.scans or len(nest.passes) != 1 or nest.passes[0].heads:
        return nest
    (one,) = nest.passes
    found = _axes(domain, one)
    if found is None:
        return nest
    read = [access for node in one.maps for access in node.reads() if one.reads.get(access.tensor) != "local"]
    if all(_is_one(access, *found) for access in read):
        return nest  # both axes are one to all: vectors lie along it
    short, lane, count = found
    extents = {name: max(size.values) for name, size in domain.extents.items()}
    maps: list[Node] = []
    for step in range(count):
        for node in one.maps:
            if short not in node.axes and short not in names(node.body):
                if step == 0:
                    maps.append(node)
                continue
            made = _at(node, short, step, extents)
            if made is None:
                return nest
            maps.append(made)
    return replace(nest, passes=[replace(one, maps=maps)], lane=lane, columns=False, interleaved=count)


def _axes(domain: Domain, one: Pass) -> tuple[str, str, int] | None:
    """The short axis, the one beside it, and how long the short one is; of everything that is stored."""
    found = set()
    for tensor, how in one.stores:
        producer = domain.producer(tensor)
        if how != "memory" or producer is None or domain.tensors[tensor].dtype not in _STORED:
            return None
        steps = {size.values: name for name, size in producer.write.terms or ()}
        ones = (1,) * domain.workloads
        short = steps.get(ones, "")
        count = domain.extents[short].values if short else ones
        found.add((short, steps.get(count, ""), count))
    short, lane, count = found.pop() if len(found) == 1 else ("", "", ())
    known = bool(short and lane) and len(set(count)) == 1 and 2 <= count[0] <= NEAR
    return (short, lane, count[0]) if known else None


def _is_one(access: Access, short: str, lane: str, count: int) -> bool:
    """Whether two axes lie in memory as one."""
    if access.terms is None:
        return not {short, lane} & names(access.index)
    steps = dict(access.terms)
    if not {short, lane} & steps.keys():
        return True
    both = short in steps and lane in steps
    return both and steps[lane].values == tuple(count * step for step in steps[short].values)


def _at(node: Node, axis: str, step: int, extents: Mapping[str, int]) -> Node | None:
    """A stage at one step of an axis; None where an address says no number for a step."""

    def put(part: Any) -> Any:
        return rewrite(substitute(part, {axis: const(step)}, extents), lambda inner: folded(inner, extents))

    accesses = {}
    for load, access in node.accesses.items():
        moved = _moved(access, axis, step)
        if moved is None:
            return None
        accesses[put(load)] = moved
    write = _moved(node.write, axis, step)
    if write is None:
        return None
    axes = tuple(name for name in node.axes if name != axis)
    name = f"{node.name}@{step}"  # no stage is called so
    return replace(node, name=name, axes=axes, body=put(node.body), accesses=accesses, write=write)


def _moved(access: Access, axis: str, step: int) -> Access | None:
    if access.terms is None:
        return access if axis not in names(access.index) else None
    size = dict(access.terms).get(axis)
    if size is None:
        return access
    if len(set(size.values)) > 1:
        return None
    terms = tuple(term for term in access.terms if term[0] != axis)
    return replace(access, terms=terms, const=access.const + step * size.first)
