"""Sums of sums in another order: what is only summed further is summed first.

    Σⱼ Σₖ x[i,k] w[k,j]  =  Σₖ x[i,k] (Σⱼ w[k,j])        (q kᵀ) v  =  q (kᵀ v)

A mean of a convolution's pixels is made of its windows' sums, one of a layer's results of its weights' column sums.
Scales, biases and whatever else is linear may lie between the two sums.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count

from evoforge.lowering.index import axis, names, substitute
from evoforge.lowering.ir import Const, Expr, Graph, Guard, Load, Op, Stage, loads, nodes
from evoforge.lowering.simplify import eliminate_dead
from evoforge.lowering.stages import extents_of, factors, operations, product
from evoforge.lowering.through import Through
from evoforge.lowering.windows import Sums, unused

__all__ = ["reassociated"]

_PAYS = 3
"""Times less work, from which on another order surely takes less time."""
_APART = 4
"""Times as much work is an operation outside of products whose elements blocks of registers use many times."""
_DEPTH = 128
"""Operators between two sums. A recurrence has more, but every step's sums are read by those of later ones."""
_T = "f32"

Factor = tuple[str, Expr]
"""``mul`` or ``div``, and by what."""


def reassociated(graph: Graph) -> Graph:
    """`graph` with sums in the order that takes less."""
    readers = _readers(graph)
    for outer in graph.stages:
        for parts in _Linear(graph, outer, readers).parts(outer.body).values() if _is_sum(graph, outer) else ():
            inner = graph.producer(parts.load.tensor)
            assert inner is not None
            made = eliminate_dead(_reordered(graph, outer, inner, parts))
            if inner not in made.stages and _PAYS * _work(made, graph) <= _work(graph, made):
                return reassociated(made)
    return graph


def _is_sum(graph: Graph, stage: Stage | None) -> bool:
    return stage is not None and _sums(stage) and graph.tensors[str(stage.outputs[0])].dtype == _T


def _sums(stage: Stage) -> bool:
    return stage.kind == "reduce" and stage.monoid == "sum" and stage.outputs[0] is not None


def _readers(graph: Graph) -> dict[str, set[str]]:
    """Tensor → the names of the sums, scans and outputs that are made of it, by themselves or through maps."""
    found: dict[str, set[str]] = {name: {name} for name in graph.names("out")}
    for stage in reversed(graph.stages):
        below = [found.get(out, set()) for out in stage.outputs if out]
        mine = set[str]().union(*below) if stage.kind == "map" else {stage.name}
        for tensor in {load.tensor for load in loads(stage.body)}:
            found.setdefault(tensor, set()).update(mine)
    return found


def _work(graph: Graph, other: Graph) -> float:
    """Operations of the stages that `other` does not have, but of transposed convolutions' products with zeros."""
    total = 0.0
    others = {stage.name: stage for stage in other.stages}
    for stage in graph.stages:
        if stage != others.get(stage.name):
            guards = {node for node in nodes(stage.body) if isinstance(node, Guard)}
            points = math.prod(extents_of(stage).values()) / math.prod(guard.modulus for guard in guards)
            each = operations(stage.body) + (stage.kind == "reduce")
            total += points * each * (1 if _uses_often(stage) else _APART)
    return total


def _uses_often(stage: Stage) -> bool:
    """Whether every factor of a sum's products is one of many results' sums."""
    results = {a.name for a in stage.axes if a.extent > 1}
    return _sums(stage) and all(results - names(factor) for factor in factors(stage.body))


# what lies between


@dataclass(frozen=True)
class _Parts:
    """An expression as an element of a sum, `load`, times factors, plus a rest."""

    load: Load
    factors: tuple[Factor, ...] = ()
    rest: Expr | None = None

    def then(self, how: str, by: Expr) -> _Parts:
        rest = None if self.rest is None else Op(how, (self.rest, by), _T)
        if how in ("mul", "div"):
            return replace(self, factors=(*self.factors, (how, by)), rest=rest)
        return replace(self, rest=rest or (by if how == "add" else Op("neg", (by,), _T)))


class _Linear:
    """Expressions of a stage and of the maps that it reads."""

    def __init__(self, graph: Graph, stage: Stage, readers: Mapping[str, set[str]]) -> None:
        self._graph, self._through = graph, Through(graph, stage)
        self._readers, self._alone = readers, {stage.name}
        self._known: dict[Expr, dict[Load, _Parts]] = {}

    def parts(self, expr: Expr, depth: int = 0) -> dict[Load, _Parts]:
        """The sums that `expr` is linear in and that nothing but the stage is made of, each by itself."""
        if depth > _DEPTH:
            return {}
        if expr not in self._known:
            self._known[expr] = self._parts(self._through.open(expr), depth + 1)
        return self._known[expr]

    def _parts(self, expr: Expr, depth: int) -> dict[Load, _Parts]:
        if isinstance(expr, Load):
            whole = not expr.guards and self._readers[expr.tensor] == self._alone
            return {expr: _Parts(expr)} if whole and _is_sum(self._graph, self._graph.producer(expr.tensor)) else {}
        if not isinstance(expr, Op) or expr.dtype != _T or expr.name not in ("add", "sub", "mul", "div", "neg"):
            return {}
        negative = Const(-1.0, _T)
        first, second = expr.args if len(expr.args) == 2 else (*expr.args, negative)
        how = "mul" if expr.name == "neg" else expr.name
        left, right = self.parts(first, depth), self.parts(second, depth)
        found = {load: parts.then(how, second) for load, parts in left.items() if load not in right}
        if how == "sub":
            right, how = {load: parts.then("mul", negative) for load, parts in right.items()}, "add"
        if how != "div":
            found |= {load: parts.then(how, first) for load, parts in right.items() if load not in left}
        return found


# the other order


def _reordered(graph: Graph, outer: Stage, inner: Stage, parts: _Parts) -> Graph:
    """`graph` where `outer` sums before `inner` does; the sums that are left take the names of the two."""
    extents = extents_of(outer)
    own = {a.name: unused(f"{a.name}_within", extents) for a in inner.reduction}
    extents |= {own[a.name]: a.extent for a in inner.reduction}
    places = dict(zip((a.name for a in inner.axes), parts.load.index, strict=True))
    places |= {old: axis(new) for old, new in own.items()}
    along, within = frozenset(a.name for a in outer.reduction), frozenset(own.values())
    taken = {stage.name for stage in graph.stages}
    called = chain([inner.name], (name for k in count() if (name := f"{outer.name}_{k}") not in taken))
    sums = Sums(dict(graph.tensors), extents, called, outer.origin)

    every = factors(substitute(inner.body, places, extents))
    every += [_as_factor(how, by) for how, by in parts.factors if names(by) & along]
    kept = [one for one in every if not names(one) & along]
    for group in _connected([one for one in every if names(one) & along], along):
        others = names(tuple(one for one in every if one not in group))
        kept.append(sums.of(product(group), names(tuple(group)) & (along | (within - others))))
    value, left = product(kept), [name for name in own.values() if name in names(tuple(kept))]
    if left:
        value = sums.stage(value, [a.name for a in outer.axes if a.name in names(value)], left, outer.name)
    value = _times(value, (along | within) - names(tuple(every)), extents)
    for how, by in parts.factors:
        value = value if names(by) & along else Op(how, (value, by), _T)
    if parts.rest is not None:
        rest = sums.of(parts.rest, names(parts.rest) & along)
        value = Op("add", (value, _times(rest, along - names(parts.rest), extents)), _T)
    whole = replace(outer, name=next(called), kind="map", reduction=(), monoid=None, body=value)
    stages = [(*sums.stages, whole) if stage is outer else (stage,) for stage in graph.stages]
    return Graph(sums.tensors, tuple(stage for part in stages for stage in part))


def _as_factor(how: str, by: Expr) -> Expr:
    return by if how == "mul" else Op("div", (Const(1.0, _T), by), _T)


def _times(expr: Expr, unused: frozenset[str], extents: Mapping[str, int]) -> Expr:
    """`expr` summed along axes that it does not depend on."""
    often = math.prod(extents[name] for name in unused)
    return expr if often == 1 else Op("mul", (expr, Const(float(often), _T)), _T)


def _connected(factors: Sequence[Expr], along: frozenset[str]) -> list[list[Expr]]:
    """Factors that share axes of the sum, by which they have to be multiplied before it."""
    groups: list[list[Expr]] = []
    for factor in factors:
        joined = [group for group in groups if names(tuple(group)) & names(factor) & along]
        groups = [group for group in groups if group not in joined]
        groups.append([*(one for group in joined for one in group), factor])
    return groups
