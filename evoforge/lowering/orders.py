"""Sums of products whose terms need not all be formed, since what is only summed further may be summed first.

`(a @ b).sum()` is b's row sums times a's column sums, `(q @ kᵀ) @ v` is `q @ (kᵀ @ v)`, a mean of a convolution's
pixels is a sum of its windows. Of two such sums the cheaper order counts; where more of them meet, or what lies
between them is more than a scale and a shift, nothing of them is counted: a bound has to be low rather than wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evoforge.lowering.index import names, plain_axis
from evoforge.lowering.ir import Cast, Const, Expr, Graph, Load, Op, Stage, Where, loads
from evoforge.lowering.stages import extents_of

__all__ = ["least_operations"]


def least_operations(graph: Graph, operations: Mapping[str, float]) -> dict[str, float]:
    """Stage → operations at least, of the sums that may be reassociated; `operations` is what they take as they are."""
    reading = _reading(graph)
    links = {stage.name: found for stage in graph.stages if (found := _summed_by(graph, stage, reading))}
    stages = {stage.name: stage for stage in graph.stages}
    least: dict[str, float] = {}
    for group in _groups(links):
        least |= dict.fromkeys(group, 0.0)
        least |= {between: 0.0 for name in group if name in links for between in links[name].through}
        producers = [name for name in group if name in links]
        consumers = [name for name in group if name not in links]
        if len(producers) == len(consumers) == 1 and (
            other := _other_order(graph, stages[producers[0]], stages[consumers[0]], links[producers[0]].loads)
        ):
            inner, outer = (operations[name] for name in (producers[0], consumers[0]))
            share = min(1.0, inner / _points(stages[producers[0]])) * min(1.0, outer / _points(stages[consumers[0]]))
            if inner + outer <= other * share:
                least |= {producers[0]: inner, consumers[0]: outer}
            else:
                least |= {producers[0]: other * share, consumers[0]: 0.0}
    return least


def _points(stage: Stage) -> float:
    """Operations of a product and a sum at every point."""
    return 2.0 * math.prod(extents_of(stage).values())


@dataclass(frozen=True)
class _Summed:
    """The sums that read a result, the maps through which they do, and how: None where it is more than elements of it
    beside other factors."""

    by: frozenset[str]
    through: frozenset[str]
    loads: tuple[Load, ...] | None


@dataclass(frozen=True)
class _Reader:
    """A stage that loads a tensor, where, and whether it is a polynomial of what it loads."""

    stage: Stage
    loads: list[Load]
    polynomial: bool


def _reading(graph: Graph) -> dict[str, list[_Reader]]:
    """The stages that load each tensor."""
    found: dict[str, list[_Reader]] = {name: [] for name in graph.tensors}
    for stage in graph.stages:
        own: dict[str, list[Load]] = {}
        for load in loads(stage.body):
            own.setdefault(load.tensor, []).append(load)
        _, other = _read(stage.body)
        for name, where in own.items():
            found[name].append(_Reader(stage, where, name not in other))
    return found


def _summed_by(graph: Graph, stage: Stage, readers: Mapping[str, Sequence[_Reader]]) -> _Summed | None:
    """The sums that all of a sum's results go into, each along an axis of them; None where one is wanted itself."""
    if stage.monoid != "sum" or stage.kind != "reduce" or not stage.outputs[0]:
        return None
    by, through, seen = set[str](), set[str](), set[str]()
    found: list[Load] = []
    plain, pending = True, [stage.outputs[0]]
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        reading = readers[name]
        if graph.tensors[name].kind != "tmp" or not reading:
            return None
        for one in reading:
            if not one.polynomial:
                return None
            reader, own = one.stage, one.loads
            if reader.kind == "map":
                axes = tuple(a.name for a in reader.axes)
                kept = all(tuple(map(plain_axis, load.index)) == axes for load in own)
                plain = plain and kept and _is_shifted(reader.body, name)
                pending += filter(None, reader.outputs)
                through.add(reader.name)
                continue
            along = {a.name for a in reader.reduction}
            if reader.monoid != "sum" or reader.kind != "reduce" or not all(along & names(load.index) for load in own):
                return None
            by.add(reader.name)
            found += own
    return _Summed(frozenset(by), frozenset(through), tuple(found) if plain else None)


def _groups(links: Mapping[str, _Summed]) -> list[set[str]]:
    """Stages that are linked with one another."""
    groups: list[set[str]] = []
    for name, link in links.items():
        group = {name, *link.by}
        for other in [other for other in groups if other & group]:
            groups.remove(other)
            group |= other
        groups.append(group)
    return groups


def _other_order(graph: Graph, inner: Stage, outer: Stage, between: tuple[Load, ...] | None) -> float:
    """Operations where `outer` sums before `inner` does; 0 where that is not known."""
    mine, theirs = _factors(inner.body), _factors(outer.body)
    if mine is None or theirs is None or between is None or len(between) != 1:
        return 0.0
    at = tuple(map(plain_axis, between[0].index))
    if None in at or len(set(at)) != len(at):
        return 0.0
    # One naming of axes: the outer stage's, and those that only the inner one sums over.
    renamed = dict(zip((a.name for a in inner.axes), at, strict=True))
    extents = {f"inner {a.name}": a.extent for a in inner.reduction} | extents_of(outer)
    reads = [
        (load, frozenset(renamed.get(name) or f"inner {name}" for name in names((load.index, load.guards))))
        for load in mine
    ]
    reads += [(load, names((load.index, load.guards))) for load in theirs if load != between[0]]
    along = frozenset(a.name for a in outer.reduction)
    rest = {*(a.name for a in outer.axes), *(f"inner {a.name}" for a in inner.reduction)}
    total = 2.0 * math.prod(extents[name] for name in rest)
    for group in _connected(reads, along):
        used = frozenset[str]().union(*(axes for _, axes in group))
        of_one = [graph.tensors[load.tensor].numel for load, _ in group]
        total += of_one[0] if len(group) == 1 else 2.0 * math.prod(extents[name] for name in used)
    return total


Reads = list[tuple[Load, frozenset[str]]]


def _connected(reads: Reads, along: frozenset[str]) -> list[Reads]:
    """Factors that share axes of the sum, by which they have to be multiplied before it."""
    groups: list[tuple[frozenset[str], Reads]] = []
    for load, axes in reads:
        shared, members = axes & along, [(load, axes)]
        if not shared:
            continue
        for group in [group for group in groups if group[0] & shared]:
            groups.remove(group)
            shared, members = shared | group[0], [*members, *group[1]]
        groups.append((shared, members))
    return [members for _, members in groups]


def _factors(expr: Expr) -> list[Load] | None:
    """The elements that a product multiplies, numbers aside; None of anything else."""
    if isinstance(expr, Load):
        return [expr]
    if isinstance(expr, Const):
        return []
    if isinstance(expr, Cast):
        return _factors(expr.arg)
    if isinstance(expr, Op) and (expr.name in ("mul", "neg") or (expr.name == "div" and not loads(expr.args[1]))):
        found = [_factors(arg) for arg in expr.args]
        return None if None in found else [load for part in found for load in part or []]
    return None


def _is_shifted(expr: Expr, tensor: str) -> bool:
    """Whether `expr` is an element of `tensor` times a number plus something else."""
    if isinstance(expr, Load):
        return expr.tensor == tensor
    if isinstance(expr, Cast):
        return _is_shifted(expr.arg, tensor)
    if not isinstance(expr, Op) or expr.name not in ("add", "sub", "mul", "div", "neg"):
        return False
    own = [arg for arg in expr.args if any(load.tensor == tensor for load in loads(arg))]
    others = [load for arg in expr.args if arg not in own for load in loads(arg)]
    return len(own) == 1 and _is_shifted(own[0], tensor) and (expr.name in ("add", "sub") or not others)


def _read(expr: Expr) -> tuple[set[str], set[str]]:
    """The tensors that `expr` reads, and those of them of which it is no polynomial."""
    if isinstance(expr, Cast):
        read, other = _read(expr.arg)
        return read, other if expr.dtype in ("f32", "f64", "f16", "bf16") else read
    if not isinstance(expr, Where | Op):
        read = {load.tensor for load in loads(expr)}
        return read, set() if isinstance(expr, Load) else read
    parts = expr.args if isinstance(expr, Op) else (expr.condition, expr.then, expr.other)
    within = [_read(part) for part in parts]
    read, other = set[str]().union(*(one for one, _ in within)), set[str]().union(*(one for _, one in within))
    if isinstance(expr, Where):
        return read, other | within[0][0]
    if expr.name in ("div", "pow"):
        by = expr.args[1]
        whole = expr.name == "div" or (isinstance(by, Const) and by.value in (2, 3, 4))
        return read, other | within[1][0] if whole else read
    return read, other if expr.name in ("add", "sub", "mul", "neg") else read
