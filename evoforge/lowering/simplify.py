"""Passes over a whole graph that keep its meaning: fewer stages, plainer indices.

They run once after capture; `tidy` is all of them in order. Each maps a `Graph` to a `Graph`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from evoforge.lowering.index import Extents, add, axis, bounds, const, plain_axis, position, scale, substitute
from evoforge.lowering.ir import (
    Affine,
    Axis,
    Cast,
    Const,
    Expr,
    Graph,
    Indirect,
    Load,
    Op,
    Position,
    Stage,
    Tensor,
    Where,
    loads,
    rewrite,
)
from evoforge.lowering.split import split_axes
from evoforge.lowering.stages import CHEAP, dtype_of, extents_of, operations, readers, row_major

__all__ = [
    "absorb_copies",
    "drop_units",
    "dtype_of",
    "eliminate_dead",
    "extents_of",
    "folded",
    "positions_inline",
    "readers",
    "rename",
    "share_identical",
    "split_axes",
    "tidy",
]

_INTEGERS = {"i32", "i64"}  # smaller ones overflow, and wrap
_COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")


def tidy(graph: Graph) -> Graph:
    """Identical stages shared, copies to outputs absorbed, axes split where that makes indices affine."""
    graph = drop_units(absorb_copies(eliminate_dead(positions_inline(share_identical(graph)))))
    return rename(eliminate_dead(split_axes(graph)))


def _redirect(node: Any, moved: Mapping[str, str]) -> Any:
    def visit(part: Any) -> Any:
        return replace(part, tensor=moved[part.tensor]) if isinstance(part, Load) and part.tensor in moved else part

    return rewrite(node, visit)


def eliminate_dead(graph: Graph) -> Graph:
    """Drops stages and results that no output depends on; argmax without its position becomes max."""
    needed = set(graph.names("out"))
    kept: list[Stage] = []
    for stage in reversed(graph.stages):
        outputs = tuple(name if name in needed else None for name in stage.outputs)
        if not any(outputs):
            continue
        stage = replace(stage, outputs=outputs)
        if stage.monoid in ("argmax", "argmin") and outputs[1] is None:
            stage = replace(stage, monoid=stage.monoid.removeprefix("arg"), outputs=outputs[:1])
        kept.append(stage)
        needed |= {load.tensor for load in loads(stage.body)}
    tensors = {name: t for name, t in graph.tensors.items() if t.kind != "tmp" or name in needed}
    return Graph(tensors, tuple(reversed(kept)))


def share_identical(graph: Graph) -> Graph:
    """A stage that computes the same as an earlier one is dropped, if it writes no output."""
    moved: dict[str, str] = {}
    seen: dict[Any, Stage] = {}
    kept: list[Stage] = []
    for stage in graph.stages:
        stage = replace(stage, body=_redirect(stage.body, moved))
        key = repr(replace(stage, name="", outputs=(None,) * len(stage.outputs), origin=""))
        dtypes = tuple(graph.tensors[name].dtype for name in stage.outputs if name)
        first = seen.get((key, dtypes))
        if first is None or any(name and graph.tensors[name].kind == "out" for name in stage.outputs):
            seen.setdefault((key, dtypes), stage)
            kept.append(stage)
            continue
        pairs = zip(stage.outputs, first.outputs, strict=True)
        moved |= {mine: theirs for mine, theirs in pairs if mine and theirs}
    return Graph(graph.tensors, tuple(kept))


def positions_inline(graph: Graph) -> Graph:
    """What is made of positions alone (distances, masks) is computed where it is read; integers become one index.

    Not where it is a float, which may cost a sine, nor a small integer, which wraps where it is stored.
    """
    known: dict[str, Stage] = {}
    stages = []
    for stage in graph.stages:
        extents = extents_of(stage)

        def visit(node: Any, extents: Mapping[str, int] = extents) -> Any:
            if isinstance(node, Load) and node.tensor in known and not node.guards:
                made = known[node.tensor]
                at = {a.name: index for a, index in zip(made.axes, node.index, strict=True)}
                return substitute(made.body, at, extents)
            return folded(node, extents)

        stage = replace(stage, body=rewrite(stage.body, visit))
        stages.append(stage)
        out = stage.outputs[0]
        whole = stage.kind == "map" and out and graph.tensors[out].dtype in _INTEGERS | {"bool"}
        if whole and out and not any(loads(stage.body)) and operations(stage.body) <= CHEAP:
            known[out] = stage
    return Graph(graph.tensors, tuple(stages))


def folded(node: Any, extents: Extents) -> Any:
    """Sums, differences and multiples of integer positions are positions, and places in memory as they are; what
    their ranges decide is decided (whether an index counts from the end)."""
    if isinstance(node, Affine):
        return _direct(node)
    if isinstance(node, Cast) and isinstance(node.arg, Position) and {node.dtype, node.arg.dtype} <= _INTEGERS:
        return replace(node.arg, dtype=node.dtype)
    if isinstance(node, Where) and isinstance(node.condition, Const) and not node.condition.sizes:
        return node.then if node.condition.value else node.other
    if isinstance(node, Op) and node.name in _COMPARED:
        return _decided(node, extents)
    if not isinstance(node, Op) or node.dtype not in _INTEGERS or node.name not in ("add", "sub", "mul"):
        return node
    left, right = (position(arg) for arg in node.args)
    if left is None or right is None:
        return node
    if node.name != "mul":
        return Position(add(left, scale(right, 1 if node.name == "add" else -1)), node.dtype)
    if left.terms and right.terms:
        return node
    factor, index = (right.const, left) if left.terms else (left.const, right)
    return Position(scale(index, factor), node.dtype)


def _direct(index: Affine) -> Affine:
    """Without indices that are read from positions."""
    found = const(index.const)
    for factor, atom in index.terms:
        made = position(atom.value) if isinstance(atom, Indirect) else None
        found = add(found, scale(made, factor) if made is not None else Affine(((factor, atom),)))
    return found


def _decided(op: Op, extents: Extents) -> Expr:
    """A comparison of which the ranges of both sides know the result."""
    (low, high), (least, most) = (_range(arg, extents) for arg in op.args)
    same, apart = low == high == least == most, high < least or low > most
    always, never = {
        "eq": (same, apart), "ne": (apart, same),
        "lt": (high < least, low >= most), "le": (high <= least, low > most),
        "gt": (low > most, high <= least), "ge": (low >= most, high < least),
    }[op.name]  # fmt: skip
    return Const(always, "bool") if always or never else op


def _range(expr: Expr, extents: Extents) -> tuple[float, float]:
    """Smallest and largest value of whole numbers that positions alone decide, infinite where nothing is known."""
    index = position(expr)
    if index is not None:
        return bounds(index, extents)
    if isinstance(expr, Op) and expr.dtype in _INTEGERS:
        found = [_range(arg, extents) for arg in expr.args]
        if expr.name == "abs":
            ((low, high),) = found
            return max(low, -high, 0), max(-low, high)
        if expr.name in ("add", "sub"):
            (low, high), (least, most) = found
            return (low + least, high + most) if expr.name == "add" else (low - most, high - least)
    return -math.inf, math.inf


# copies to outputs


def absorb_copies(graph: Graph) -> Graph:
    """Lets the stage behind ``out = copy of tmp`` write the output itself.

    A map that only the copy reads is evaluated over the output's axes, through whatever view. Any
    other stage is laid out as the output if that only permutes dimensions or adds sizes of 1.
    """
    for name in [stage.name for stage in graph.stages if stage.kind == "map"]:
        copy = graph.by_name.get(name)
        if copy is None:  # evaluated at an output already
            continue
        load = copy.body.arg if isinstance(copy.body, Cast) else copy.body
        out = copy.outputs[0]
        if out is None or graph.tensors[out].kind != "out" or not isinstance(load, Load) or load.guards:
            continue
        producer = graph.producer(load.tensor)
        if producer is None or graph.tensors[load.tensor].kind != "tmp":
            continue
        source, target = graph.tensors[load.tensor], graph.tensors[out]
        alone = len(readers(graph, load.tensor)) == 1
        if producer.kind == "map" and alone and target.numel <= source.numel:
            graph = _evaluated_at(graph, producer, copy, load)
        elif source.dtype == target.dtype:
            graph = _laid_out(graph, producer, copy, load)
    return graph


def _evaluated_at(graph: Graph, producer: Stage, copy: Stage, load: Load) -> Graph:
    at = {a.name: index for a, index in zip(producer.axes, load.index, strict=True)}
    body = substitute(producer.body, at, extents_of(copy))
    if isinstance(copy.body, Cast):
        body = Cast(body, copy.body.dtype)
    merged = replace(copy, body=body, origin=producer.origin)
    return Graph(graph.tensors, tuple(merged if s is copy else s for s in graph.stages if s is not producer))


def _laid_out(graph: Graph, producer: Stage, copy: Stage, load: Load) -> Graph:
    """Gives the producer's results the copy's layout; unchanged where the view is no permutation."""
    order = _permutation(copy, load, graph.tensors[load.tensor])
    if order is None:
        return graph
    others = [name for name in producer.outputs if name and name != load.tensor]
    if order != tuple(range(len(order))) and any(graph.tensors[name].kind == "out" for name in others):
        return graph
    own = [producer_axis.name for producer_axis in producer.axes] if producer.kind != "scan" else list(producer.order)
    by_name = {a.name: a for a in (*producer.axes, *producer.reduction)}
    laid = [by_name[own[at]] if at is not None else Axis(f"u{k}", 1) for k, at in enumerate(order)]
    out = copy.outputs[0]
    assert out is not None
    shape = tuple(a.extent for a in laid)
    tensors = dict(graph.tensors)
    for name in others:
        tensors[name] = replace(tensors[name], shape=shape, stride=row_major(shape))
    changed = replace(
        producer,
        axes=tuple(a for a in laid if a not in producer.reduction),
        order=tuple(a.name for a in laid) if producer.kind == "scan" else (),
        outputs=tuple(out if name == load.tensor else name for name in producer.outputs),
    )
    touched = {load.tensor: out, **{name: name for name in others}}

    def visit(node: Any) -> Any:
        if isinstance(node, Load) and node.tensor in touched:
            index = tuple(const(0) if at is None else node.index[at] for at in order)
            return replace(node, tensor=touched[node.tensor], index=index)
        return node

    stages = [
        changed if s is producer else replace(s, body=rewrite(s.body, visit)) for s in graph.stages if s is not copy
    ]
    return Graph(tensors, tuple(stages))


def _permutation(copy: Stage, load: Load, source: Tensor) -> tuple[int | None, ...] | None:
    """For every dimension of the output the source's dimension, None for an added size of 1; or no permutation."""
    where: dict[str, int] = {}
    free = []
    for at, (index, size) in enumerate(zip(load.index, source.shape, strict=True)):
        name = plain_axis(index)
        if name is not None and name not in where and extents_of(copy)[name] == size:
            where[name] = at
        elif size == 1 and index == const(0):
            free.append(at)
        else:
            return None
    order: list[int | None] = []
    for a in copy.axes:
        if a.name in where:
            order.append(where[a.name])
        elif a.extent == 1:
            order.append(free.pop(0) if free else None)
        else:
            return None
    return None if free else tuple(order)


def drop_units(graph: Graph) -> Graph:
    """Temporaries lose their dimensions of size 1, so that every per-row result has one shape."""
    kept: dict[str, tuple[int, ...]] = {}  # by temporary, those of its dimensions that are left
    for stage in graph.stages:
        written = [name for name in stage.outputs if name]
        left = tuple(at for at, a in enumerate(stage.axes) if a.extent != 1)
        loses = len(left) < len(stage.axes) and stage.kind != "scan"
        if loses and not any(graph.tensors[name].kind == "out" for name in written):
            kept |= dict.fromkeys(written, left)

    def visit(node: Any) -> Any:
        if isinstance(node, Load) and node.tensor in kept:
            return replace(node, index=tuple(node.index[at] for at in kept[node.tensor]))
        return node

    tensors = dict(graph.tensors)
    for name, left in kept.items():
        shape = tuple(tensors[name].shape[at] for at in left)
        tensors[name] = replace(tensors[name], shape=shape, stride=row_major(shape))
    stages = []
    for stage in graph.stages:
        body = rewrite(stage.body, visit)
        own = next((kept[name] for name in stage.outputs if name in kept), None)
        if own is not None:
            body = substitute(body, {}, extents_of(stage))
            stage = replace(stage, axes=tuple(stage.axes[at] for at in own))
        stages.append(replace(stage, body=body))
    return Graph(tensors, tuple(stages))


def rename(graph: Graph) -> Graph:
    """Axes i0… and r0…, temporaries tmp0… in order of their stages."""
    moved: dict[str, str] = {}
    for stage in graph.stages:
        for name in stage.outputs:
            if name and graph.tensors[name].kind == "tmp":
                moved[name] = f"tmp{len(moved)}"
    tensors = {moved.get(name, name): replace(t, name=moved.get(name, name)) for name, t in graph.tensors.items()}
    return Graph(tensors, tuple(_renamed(stage, moved) for stage in graph.stages))


def _renamed(stage: Stage, moved: Mapping[str, str]) -> Stage:
    new = {a.name: f"i{k}" for k, a in enumerate(stage.axes)} | {a.name: f"r{k}" for k, a in enumerate(stage.reduction)}

    def visit(node: Any) -> Any:
        if isinstance(node, Load) and node.tensor in moved:
            return replace(node, tensor=moved[node.tensor])
        return node

    extents = {new[a.name]: a.extent for a in (*stage.axes, *stage.reduction)}
    body = substitute(rewrite(stage.body, visit), {old: axis(now) for old, now in new.items()}, extents)
    return replace(
        stage,
        axes=tuple(Axis(new[a.name], a.extent) for a in stage.axes),
        reduction=tuple(Axis(new[a.name], a.extent) for a in stage.reduction),
        order=tuple(new[name] for name in stage.order),
        body=body,
        outputs=tuple(moved.get(name, name) if name else None for name in stage.outputs),
    )
