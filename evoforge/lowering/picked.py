"""Sums of products of which positions leave one term: Σₖ [k = i] dₖ · b[k,j] is dᵢ · b[i,j].

Such are products with diagonal matrices and what a unit matrix masks. Values are finite: 0 · x is 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce

from evoforge.lowering.index import add, axis, bounds, names, position, scale, substitute
from evoforge.lowering.ir import Affine, Cast, Const, Expr, Graph, Op, Stage, Where
from evoforge.lowering.stages import extents_of
from evoforge.lowering.through import Through

__all__ = ["picked"]


def picked(graph: Graph) -> Graph:
    """`graph`, where no sum runs along an axis of which one place counts."""
    stages: list[Stage] = []
    for stage in graph.stages:
        while (made := _without_axis(graph, stage)) is not None:
            stage = made
        stages.append(stage)
    return Graph(graph.tensors, tuple(stages))


def _without_axis(graph: Graph, stage: Stage) -> Stage | None:
    out = stage.outputs[0]
    if stage.kind != "reduce" or stage.monoid != "sum" or out is None or graph.tensors[out].dtype != "f32":
        return None
    factors, extents = _factors(stage.body, Through(graph, stage)), extents_of(stage)
    for at, factor in enumerate(factors):
        for a in stage.reduction:
            chosen = _chosen(factor)
            place = _place(chosen[0], a.name, extents) if chosen else None
            if chosen is None or place is None:
                continue
            left = [*factors[:at], *([] if chosen[1] == _ONE and len(factors) > 1 else [chosen[1]]), *factors[at + 1 :]]
            product = reduce(lambda x, y: Op("mul", (x, y), "f32"), left)
            body = substitute(product, {a.name: place}, extents)
            reduction = tuple(other for other in stage.reduction if other != a)
            if reduction:
                return replace(stage, body=body, reduction=reduction)
            return replace(stage, kind="map", monoid=None, body=body, reduction=())
    return None


_ONE = Const(1.0, "f32")


def _factors(expr: Expr, through: Through) -> list[Expr]:
    """Of a product, seen through maps as far as that shows more of them, or what positions choose."""
    opened = through.open(expr)
    if isinstance(opened, Op) and opened.name == "mul" and opened.dtype == "f32":
        found = [factor for arg in opened.args for factor in _factors(arg, through)]
        return found if expr is opened or any(map(_chosen, found)) else [expr]
    return [opened if _chosen(opened) else expr]


def _chosen(expr: Expr) -> tuple[Op, Expr] | None:
    """Of what is 0 wherever two numbers differ, their comparison, and what it is where they do not."""
    if isinstance(expr, Where) and isinstance(expr.other, Const) and expr.other.value == 0:
        condition, value = expr.condition, expr.then
    elif isinstance(expr, Cast) and expr.dtype == "f32":
        condition, value = expr.arg, _ONE
    else:
        return None
    return (condition, value) if isinstance(condition, Op) and condition.name == "eq" else None


def _place(equal: Op, name: str, extents: Mapping[str, int]) -> Affine | None:
    """Where on an axis both sides are equal, if there always is such a place."""
    left, right = (position(arg) for arg in equal.args)
    if left is None or right is None:
        return None
    gap = add(left, scale(right, -1))
    factor = next((factor for factor, atom in gap.terms if atom == name), 0)
    place = add(axis(name), scale(gap, -factor))
    if abs(factor) != 1 or name in names(place):
        return None
    low, high = bounds(place, extents)
    return place if low >= 0 and high < extents[name] else None
