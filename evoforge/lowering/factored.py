"""Factors taken out of sums of products: Σ (x · f) y is f · Σ x y where f is the same all along the sum.

Such are a softmax's division before the product with the values (FlashAttention divides last, too: Dao et al. 2022,
arXiv 2205.14135), a normalisation's scale before a matrix product, and what multiplies a row of quantised weights. They
are applied to every sum instead of to every term, and the products need not wait for them.
"""

from __future__ import annotations

from dataclasses import replace

from evoforge.lowering.index import axis, const, names, substitute
from evoforge.lowering.ir import Affine, Expr, Graph, Load, Op, Stage
from evoforge.lowering.stages import extents_of, readers, row_major
from evoforge.lowering.windows import unused

__all__ = ["factored"]

Factor = tuple[str, Expr]
"""``mul`` or ``div``, and by what."""


def factored(graph: Graph) -> Graph:
    """`graph`, where what is summed has lost the factors that its sum can have instead."""
    for stage in graph.stages:
        out = stage.outputs[0]
        product = stage.monoid == "sum" and isinstance(stage.body, Op) and stage.body.name == "mul"
        if product and out is not None and graph.tensors[out].dtype == "f32":
            producer = graph.producer(out)
            assert producer is not None
            graph = _without_factors(graph, producer)
    return graph


def _without_factors(graph: Graph, stage: Stage) -> Graph:
    assert isinstance(stage.body, Op)
    stages, extents = {one.name: one for one in graph.stages}, extents_of(stage)
    factors: list[Factor] = []
    args: list[Expr] = []
    for arg in stage.body.args:
        source = graph.producer(arg.tensor) if isinstance(arg, Load) else None
        found, rest = _parted(graph, source, arg, stage) if source and isinstance(arg, Load) else ([], None)
        if source is None or rest is None or not isinstance(arg, Load):
            args.append(arg)
            continue
        factors += found
        own = readers(graph, arg.tensor) == [stage] and graph.tensors[arg.tensor].kind == "tmp"
        if own and not isinstance(rest, Load):
            stages[source.name] = replace(source, body=rest)
            args.append(arg)
            continue
        args.append(substitute(rest, _places(source, arg), extents))
        made = graph.producer(rest.tensor) if isinstance(rest, Load) else None
        if own and made is not None and made.kind == "map":
            # What takes a stage's place takes its name, too: genomes say by names what is stored.
            stages[made.name], stages[source.name] = replace(made, name=source.name), replace(source, name=made.name)
    if not factors:
        return graph
    (out,) = stage.outputs
    assert out is not None
    tensors, sums = dict(graph.tensors), f"{out}_sums"
    tensors[sums] = replace(tensors[out], name=sums, kind="tmp", stride=row_major(tensors[out].shape))
    value: Expr = Load(sums, tuple(const(0) if a.extent == 1 else axis(a.name) for a in stage.axes))
    for how, factor in factors:
        value = Op(how, (value, factor), "f32")
    finished = Stage(unused(f"{stage.name}_scaled", stages), "map", stage.axes, value, (out,), origin=stage.origin)
    stages[stage.name] = replace(stage, body=replace(stage.body, args=tuple(args)), outputs=(sums,))
    order = list(stages.values())
    order.insert(list(stages).index(stage.name) + 1, finished)
    return Graph(tensors, tuple(order))


def _parted(graph: Graph, source: Stage, load: Load, stage: Stage) -> tuple[list[Factor], Expr | None]:
    """The factors of a map that `stage` can do without until it has summed, in its axes, and the others' product in the
    map's; none and None where it has no factors of both kinds."""
    if source.kind != "map" or load.guards or graph.tensors[load.tensor].dtype != "f32":
        return [], None
    places, extents, summed = _places(source, load), extents_of(stage), {a.name for a in stage.reduction}
    found: list[Factor] = []
    rest: Expr | None = None
    for how, factor in _factors(source.body):
        here = substitute(factor, places, extents)
        if names(here) and not names(here) & summed:
            found.append((how, here))
        elif rest is not None:
            rest = Op(how, (rest, factor), "f32")
        elif how == "mul":
            rest = factor
        else:
            return [], None  # nothing to divide
    return (found, rest) if found and rest is not None else ([], None)


def _places(source: Stage, load: Load) -> dict[str, Affine]:
    return dict(zip((a.name for a in source.axes), load.index, strict=True))


def _factors(expr: Expr, divides: bool = False) -> list[Factor]:
    if isinstance(expr, Op) and expr.name in ("mul", "div") and expr.dtype == "f32":
        first, second = expr.args
        return _factors(first, divides) + _factors(second, divides != (expr.name == "div"))
    return [("div" if divides else "mul", expr)]
