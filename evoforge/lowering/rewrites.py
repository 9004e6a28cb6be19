"""Algebraic rewrites of a graph: other ways to compute the same thing, chosen by the genome.

    maxsum        max x, then Σ exp(x − max): one pass that carries both (Milakov and Gimelshein 2018,
                  arXiv 1805.02867)
    welford       mean, then Σ (x − mean)²: one pass that carries both (Welford 1962)
    picked        sums of which positions leave one term, without summing (see `picked`)
    reassociated  what is only summed further is summed first, where that is much less work (see `reassociated`)
    factored      a row's factor behind its sums of products instead of before (see `factored`)
    phases        strided transposed convolutions as ordinary ones, a phase each (see `phases`)
    padded        what is read beyond the edges of a tensor, from a copy that has them (see `padded`)
    winograd      convolutions with three taps along an axis, in fewer products (see `winograd`)

`unfold` is not a choice: it replaces reads of a map at other places than where the reader stands
(a gather, a shift, a transpose) by the map's own expression there, if that is not too long. What is
added or subtracted stays rounded if it is a sum itself, as in second differences, or if sums read it at
several places: x less its neighbour is 0 where they are equal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Any

from evoforge.lowering.factored import factored
from evoforge.lowering.index import axis, const, plain_axis
from evoforge.lowering.ir import Const, Expr, Graph, Load, Op, Stage, Tensor, Where, loads, nodes, rewrite
from evoforge.lowering.padded import padded
from evoforge.lowering.phases import phases
from evoforge.lowering.picked import picked
from evoforge.lowering.reassociated import reassociated
from evoforge.lowering.simplify import eliminate_dead
from evoforge.lowering.stages import extents_of, is_sum, operations
from evoforge.lowering.through import Through, at
from evoforge.lowering.windows import unused
from evoforge.lowering.winograd import winograd

__all__ = ["FINITE", "REWRITES", "apply", "available", "unfold"]

REWRITES = ("maxsum", "welford", "picked", "reassociated", "factored", "phases", "padded", "winograd")
FINITE = ("picked", "reassociated", "winograd")
"""Those that give other NaN and infinities than the plain form: 0 · ∞ is left out, or ∞ − ∞ comes in."""
_MOST = 64
"""Operations of a map that are done again at other places: in a chain of shifted sums they double with every step."""
_MOST_COPIES = 6  # behind one another, that a value is followed through
_WRAPPING = ("i8", "u8", "i16")  # where they are stored: C++ computes with longer ones


def available(graph: Graph) -> list[str]:
    """The rewrites that change this graph, by themselves or behind another one."""
    first: tuple[list[str], ...] = ([], ["phases"])
    return [name for name in REWRITES if any(apply(graph, [*one, name]) != apply(graph, one) for one in first)]


def apply(graph: Graph, names: list[str]) -> Graph:
    """`graph` with the named rewrites applied wherever they fit."""
    if "maxsum" in names:
        graph = _pairs(graph, "max", _sum_of_exp, "maxsum")
    if "welford" in names:
        graph = _pairs(graph, "sum", _sum_of_squares, "welford")
    if "picked" in names:
        graph = eliminate_dead(picked(graph))
    if "reassociated" in names:
        graph = reassociated(graph)
    if "factored" in names:
        graph = eliminate_dead(factored(graph))
    if "phases" in names:
        graph = phases(graph)
    if "padded" in names:
        graph = padded(graph)
    if "winograd" in names:
        graph = winograd(graph)
    return graph


def unfold(graph: Graph) -> Graph:
    """Replaces reads of temporaries that a map writes, where the reader is at another place."""
    graph = _rounded(graph)
    producers = {out: stage for stage in graph.stages for out in stage.outputs if out}
    stages: list[Stage] = []
    done: dict[str, Stage] = {}
    for stage in graph.stages:
        extents = extents_of(stage)

        def visit(node: Any, extents: dict[str, int] = extents) -> Any:
            if not isinstance(node, Load) or node.guards or graph.tensors[node.tensor].kind != "tmp":
                return node
            producer = done.get(producers[node.tensor].name)
            if producer is None or producer.kind != "map" or _in_place(node, producer, extents):
                return node
            if graph.tensors[node.tensor].dtype in _WRAPPING:
                return node
            return at(producer, node, extents) if operations(producer.body) <= _MOST else node

        done[stage.name] = replace(stage, body=rewrite(stage.body, visit))
        stages.append(done[stage.name])
    return eliminate_dead(Graph(graph.tensors, tuple(stages)))


def _rounded(graph: Graph) -> Graph:
    """`graph`, where what sums read of maps is rounded first if they are sums, or read at several places."""
    maps = {out: stage for stage in graph.stages if stage.kind == "map" for out in stage.outputs if out}
    places: dict[str, list[bool]] = {}
    for stage in graph.stages:
        for one in filter(is_sum, nodes(stage.body)):
            for tensor, stands in (read for arg in one.args for read in _reads(arg, maps, extents_of(stage))):
                places.setdefault(tensor, []).append(stands)
    several = {tensor for tensor, stand in places.items() if len(stand) > 1 and not all(stand)}

    def kept(arg: Expr, extents: dict[str, int]) -> Expr:
        found = _reads(arg, maps, extents)
        again = any(tensor in several or (is_sum(maps[tensor].body) and not stands) for tensor, stands in found)
        return Op("rounded", (arg,), "f32") if again else arg

    def visited(stage: Stage) -> Stage:
        extents = extents_of(stage)

        def visit(node: Any) -> Any:
            apart = is_sum(node) and node.dtype == "f32"
            return replace(node, args=tuple(kept(arg, extents) for arg in node.args)) if apart else node

        return replace(stage, body=rewrite(stage.body, visit))

    return Graph(graph.tensors, tuple(map(visited, graph.stages)))


def _reads(
    expr: Expr, maps: Mapping[str, Stage], extents: Mapping[str, int], copies: int = _MOST_COPIES
) -> list[tuple[str, bool]]:
    """The results of maps that an expression is one of, as it was read, maybe through copies; and whether it is read
    where it is written."""
    if isinstance(expr, Where):
        return [read for part in (expr.then, expr.other) for read in _reads(part, maps, extents, copies)]
    if not isinstance(expr, Load) or expr.tensor not in maps:
        return []
    source = maps[expr.tensor]
    stands = not expr.guards and _in_place(expr, source, extents)
    if copies and isinstance(source.body, Load | Where):
        found = _reads(source.body, maps, extents_of(source), copies - 1)
        return [(tensor, here and stands) for tensor, here in found]
    return [(expr.tensor, stands)]


def _in_place(load: Load, producer: Stage, extents: Mapping[str, int]) -> bool:
    for a, index in zip(producer.axes, load.index, strict=True):
        name = plain_axis(index)
        if a.extent != 1 and (name is None or extents.get(name) != a.extent):
            return False
    return True


def _same_domain(a: Stage, b: Stage) -> bool:
    return [x.extent for x in a.axes] == [x.extent for x in b.axes] and [x.extent for x in a.reduction] == [
        x.extent for x in b.reduction
    ]


def _sum_of_exp(graph: Graph, first: Stage, second: Stage) -> bool:
    """Whether `second` is Σ exp(x − m) for the maximum m of the same x that `first` takes."""
    top, through = first.outputs[0], Through(graph, second)
    power = through.args(second.body, "exp", top) if second.monoid == "sum" else None
    gap = through.args(power[0], "sub", top) if power else None
    if gap is None or not _reads_whole(through.open(gap[1], top), top, second):
        return False
    return through.same(gap[0], through.body(first))


def _reads_whole(load: Expr, tensor: str | None, stage: Stage) -> bool:
    if not isinstance(load, Load) or load.tensor != tensor or load.guards:
        return False
    return [plain_axis(i) for i, a in zip(load.index, stage.axes, strict=False) if a.extent != 1] == [
        a.name for a in stage.axes if a.extent != 1
    ]


def _sum_of_squares(graph: Graph, first: Stage, second: Stage) -> bool:
    """Whether `second` is Σ (x − mean x)² for the mean of the x that `first` sums."""
    total, through = first.outputs[0], Through(graph, second)
    square = through.args(second.body, "mul", total) if second.monoid == "sum" else None
    gap = through.args(square[0], "sub", total) if square and through.same(*square) else None
    mean = through.args(gap[1], "div", total) if gap else None
    if gap is None or mean is None or not _reads_whole(through.open(mean[0], total), total, second):
        return False
    count = math.prod(a.extent for a in first.reduction)
    divided = isinstance(mean[1], Const) and float(mean[1].value) == float(count)
    return divided and through.same(gap[0], through.body(first))


def _pairs(graph: Graph, monoid: str, matches: Any, merged: str) -> Graph:
    firsts = [one for one in graph.stages if one.kind == "reduce" and one.monoid == monoid and _float(graph, one)]
    reading = _reading(graph, {str(first.outputs[0]) for first in firsts})
    for first in firsts:
        for second in reading.get(str(first.outputs[0]), ()):
            if _same_domain(first, second) and matches(graph, first, second):
                return _pairs(_merged(graph, first, second, merged), monoid, matches, merged)
    return graph


def _reading(graph: Graph, wanted: Set[str]) -> dict[str, list[Stage]]:
    """Those of `wanted`, none a map's result, and the reductions that read them, by themselves or through maps."""
    through = {name: {name} for name in wanted}  # what a tensor is made of
    found: dict[str, list[Stage]] = {}
    for stage in graph.stages:
        read = {name for load in loads(stage.body) for name in through.get(load.tensor, ())}
        if stage.kind == "map":
            through |= {out: read for out in stage.outputs if out and read}
        elif stage.kind == "reduce":
            for name in read:
                found.setdefault(name, []).append(stage)
    return found


def _float(graph: Graph, stage: Stage) -> bool:
    out = stage.outputs[0]
    return out is not None and graph.tensors[out].dtype == "f32"


def _merged(graph: Graph, first: Stage, second: Stage, merged: str) -> Graph:
    """Puts one two-valued reduction in the place of `first` and drops `second`."""
    a, b = first.outputs[0], second.outputs[0]
    assert a is not None and b is not None
    tensors: dict[str, Tensor] = dict(graph.tensors)
    stages = [s for s in graph.stages if s is not second]
    at = stages.index(first)
    if merged == "maxsum":
        stages[at] = replace(first, monoid="maxsum", outputs=(a, b))
        return Graph(tensors, tuple(stages))
    # welford gives the mean where the first stage gave a sum: a map gives the sum back
    mean = f"{a}m"
    tensors[mean] = replace(tensors[a], name=mean, kind="tmp")
    stages[at] = replace(first, monoid="welford", outputs=(mean, b))
    count = math.prod(x.extent for x in first.reduction)
    index = tuple(const(0) if x.extent == 1 else axis(x.name) for x in first.axes)
    body: Expr = Op("mul", (Load(mean, index), Const(float(count), "f32")), "f32")
    name = unused(f"{first.name}_total", graph.by_name)
    stages.insert(at + 1, Stage(name, "map", first.axes, body, (a,), origin=first.origin))
    return _cancelled(Graph(tensors, tuple(stages)), a, mean, float(count))


def _cancelled(graph: Graph, total: str, mean: str, count: float) -> Graph:
    """Where the sum is read only to be divided by the count, reads the mean."""

    def visit(node: Any) -> Any:
        if (
            isinstance(node, Op)
            and node.name == "div"
            and isinstance(node.args[0], Load)
            and node.args[0].tensor == total
        ):
            divisor = node.args[1]
            if isinstance(divisor, Const) and float(divisor.value) == count:
                return replace(node.args[0], tensor=mean)
        return node

    stages = tuple(replace(stage, body=rewrite(stage.body, visit)) for stage in graph.stages)
    return eliminate_dead(Graph(graph.tensors, stages))
