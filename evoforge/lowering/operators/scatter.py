"""Writes at indices that are themselves data, turned round: every target looks for what is written to it.

So no two threads write to one place and sums have an order, for as many comparisons as there are targets times
indices, which is why these are bounded. Where several are written to one place the last one stays, as in torch on the
CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from evoforge.lowering.index import add, affine, axis, const, scale
from evoforge.lowering.ir import Affine, Cast, Const, Expr, Guard, Indirect, Position, loads
from evoforge.lowering.operators.builder import Builder, Value, highest, is_float, lowest, number, op, where
from evoforge.lowering.operators.indexing import from_end
from evoforge.lowering.operators.registry import register
from evoforge.lowering.operators.views import behind, reshaped
from evoforge.lowering.stages import row_major

__all__ = ["joined"]

Index = list[Affine]
Body = Callable[[Index, Index, dict[str, int]], Expr]
"""Of a target's index and a place among the indices."""

_MOST_WORK = 512
"""Comparisons for every element that is read or written, beyond which torch is faster whatever the schedule."""
_MONOIDS = {"sum": "sum", "mean": "sum", "prod": "prod", "amax": "max", "amin": "min"}
_SEGMENTS = {"sum": 0.0, "mean": math.nan, "prod": 1.0, "max": -math.inf, "min": math.inf}
"""Of segments: reduction → what an empty one is."""


@register("scatter.src", "scatter.value")
def _scatter(b: Builder, x: Value, dim: int, at: Value, source: Value | float | int | bool) -> Value:
    x, at, dim, new = _rows(b, x, dim, at, source)
    return reshaped(_last(b, x, [at.shape[dim]], _hits(x, dim, at), lambda i, r, e: new(i, r[0], e)), b.out_shape())


@register("scatter_add")
def _scatter_add(b: Builder, x: Value, dim: int, at: Value, source: Value) -> Value:
    return _scatter_reduce(b, x, dim, at, source, "sum")


@register("scatter_reduce.two")
def _scatter_reduce(
    b: Builder, x: Value, dim: int, at: Value, source: Value | float | int | bool, reduce: str, *,
    include_self: bool = True,
) -> Value:  # fmt: skip
    x, at, dim, new = _rows(b, x, dim, at, source)
    hit, written = _hits(x, dim, at), lambda i, r, e: new(i, r[0], e)
    return reshaped(joined(b, x, [at.shape[dim]], hit, written, reduce, own=include_self), b.out_shape())


@register("scatter.reduce", "scatter.value_reduce")
def _scatter_joined(
    b: Builder, x: Value, dim: int, at: Value, source: Value | float | int | bool, *, reduce: str
) -> Value:
    return _scatter_reduce(b, x, dim, at, source, {"add": "sum", "multiply": "prod"}[reduce])


@register("index_reduce")
def _index_reduce(
    b: Builder, x: Value, dim: int, which: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Value:
    at = which.viewed(source.shape, [axis(f"d{dim % max(x.rank, 1)}")] if which.rank else [])
    return _scatter_reduce(b, x, dim, at, source, reduce, include_self=include_self)


@register("segment_reduce")
def _segment_reduce(
    b: Builder, x: Value, reduce: str, *, lengths: Value | None = None, indices: Value | None = None,
    offsets: Value | None = None, axis: int = 0, unsafe: bool = False, initial: float | None = None,
) -> Value:  # fmt: skip
    """Of rows that lie one after the other, so many to a segment."""
    if (lengths is None) == (offsets is None) or axis != 0 or initial is not None or not is_float(x.dtype):
        raise b.refuse("anything but lengths, or offsets, of floats along the first dimension")
    given = lengths if lengths is not None else offsets
    assert given is not None
    if given.rank != 1:
        raise b.refuse("segments of more than one dimension")

    def before(i: Index, r: Index, e: dict[str, int]) -> Expr:
        earlier = op("lt", Position(add(r[0], scale(i[0], -1)), "i64"), Const(0, "i64"), dtype="bool")
        return where(earlier, given.read([r[0]], e, "i64"), Const(0, "i64"), "i64")

    starts = given if lengths is None else b.sum([*given.shape], [given.shape[0]], "i64", before, "starts")

    def hit(i: Index, r: Index, e: dict[str, int]) -> Expr:
        start, here = starts.read([i[0]], e, "i64"), Position(r[0], "i64")
        if lengths is None:
            end = starts.read([add(i[0], const(1))], e, "i64")
        else:
            end = op("add", start, given.read([i[0]], e, "i64"), dtype="i64")
        return _both(op("ge", here, start, dtype="bool"), op("lt", here, end, dtype="bool"))

    empty = Value(b.out_shape(), number(_SEGMENTS[reduce], x.dtype), x.dtype)
    name = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    return joined(b, empty, [x.shape[0]], hit, lambda i, r, e: x.read([r[0], *i[1:]], e), name, own=False)


@register("searchsorted.Tensor", "searchsorted.Scalar")
def _searchsorted(
    b: Builder, edges: Value, x: Value | float, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Value | None = None,
) -> Value:  # fmt: skip
    """How many edges are below: no search, but in vectors. NaN lies behind them all.

    Of edges out of order a search finds something else, so those that come as an input are refused: nobody knows them.
    """
    if sorter is not None:
        raise b.refuse("a sorter")
    if any(load.tensor.startswith("in") for load in loads(edges.expr)):
        raise b.refuse("edges that are an input (they need not be sorted)")
    wanted = x if isinstance(x, Value) else b.constant(x, edges.dtype)
    shape, size = b.out_shape(), edges.shape[-1]
    t = edges.dtype if is_float(edges.dtype) or not is_float(wanted.dtype) else wanted.dtype
    _bound(b, shape, [size])

    def below(i: Index, r: Index, e: dict[str, int]) -> Expr:
        edge = edges.read([*i[: edges.rank - 1], r[0]], e, t)
        name = "gt" if right or side == "right" else "ge"
        return where(op(name, edge, wanted.read(i, e, t), dtype="bool"), Const(0.0, "f32"), Const(1.0, "f32"), "f32")

    count = b.sum(shape, [size], "f32", below, "below")
    return b.map(shape, b.out_dtype(), lambda i, e: Cast(count.read(i, e), b.out_dtype()))


@register("index_put", "_unsafe_index_put")
def _index_put(b: Builder, x: Value, indices: Sequence[Value | None], new: Value, accumulate: bool = False) -> Value:
    """``x[indices] = new``, or ``+=``; a mask of truth values with one number for all."""
    given = [(dim, which) for dim, which in enumerate(indices) if which is not None]
    if any(which.dtype == "bool" for _, which in given):
        return _masked(b, x, given, new, accumulate)
    dims = [dim for dim, _ in given]
    width = max((which.rank for _, which in given), default=0)
    # where the dimensions of the indices stand in what is written, as numpy has it
    first = dims[0] if dims == list(range(dims[0], dims[0] + len(dims))) else 0
    sizes = [max([1, *(w.shape[k - width] for _, w in given if w.rank >= width - k)]) for k in range(width)]

    def hit(i: Index, r: Index, e: dict[str, int]) -> Expr:
        here: Expr = Const(True, "bool")
        for dim, which in given:
            place = from_end(which.read(r, e, "i64"), x.shape[dim])
            here = _both(here, op("eq", place, Position(i[dim], "i64"), dtype="bool"))
        return here

    def written(i: Index, r: Index, e: dict[str, int]) -> Expr:
        rest = [at for dim, at in enumerate(i) if dim not in dims]
        return new.read([*rest[:first], *r, *rest[first:]], e, x.dtype)

    if accumulate:
        return joined(b, x, sizes, hit, written, "sum")
    return _last(b, x, sizes, hit, written)


def _masked(b: Builder, x: Value, given: Sequence[tuple[int, Value]], new: Value, accumulate: bool) -> Value:
    """One number wherever a mask holds, as ``y[y < 0] = 0`` has it."""
    if accumulate or len(given) != 1 or math.prod(new.shape) != 1:
        raise b.refuse("masks, but for one mask and one number")
    ((first, mask),), t = given, b.out_dtype()

    def body(i: Index, e: dict[str, int]) -> Expr:
        here = mask.read(i[first : first + mask.rank], e, "bool")
        return where(here, new.read([], e, t), x.read(i, e, t), t)

    return b.map(b.out_shape(), t, body)


def _rows(
    b: Builder, x: Value, dim: int, at: Value, source: Value | float | int | bool
) -> tuple[Value, Value, int, Callable[[Index, Affine, dict[str, int]], Expr]]:
    """Target, indices, the dimension that these are along, and what is written from a place among them."""
    if not x.rank:
        x, at = reshaped(x, (1,)), reshaped(at, (1,))
        source = reshaped(source, (1,)) if isinstance(source, Value) else source
    dim %= x.rank

    def new(i: Index, place: Affine, e: dict[str, int]) -> Expr:
        if not isinstance(source, Value):
            return number(source, x.dtype)
        own = [*i[:dim], place, *i[dim + 1 :]]
        beyond = [Guard(add(const(source.shape[k] - 1), scale(i[k], -1))) for k in range(x.rank) if k != dim]
        return behind(source.read(own, e, x.dtype), beyond, e, 0.0, x.dtype)

    return x, at, dim, new


def _hits(x: Value, dim: int, at: Value) -> Body:
    """Indices may cover less of the other dimensions than the target has."""

    def hit(i: Index, r: Index, e: dict[str, int]) -> Expr:
        beyond = [Guard(add(const(at.shape[k] - 1), scale(i[k], -1))) for k in range(x.rank) if k != dim]
        place = behind(at.read([*i[:dim], r[0], *i[dim + 1 :]], e, "i64"), beyond, e, 0.0, "i64")
        here: Expr = op("eq", place, Position(i[dim], "i64"), dtype="bool")
        for k in range(x.rank):
            if k != dim and at.shape[k] < x.shape[k]:
                here = _both(here, op("lt", Position(i[k], "i64"), Const(at.shape[k], "i64"), dtype="bool"))
        return here

    return hit


def joined(
    b: Builder, x: Value, sizes: Sequence[int], hit: Body, written: Body, reduce: str, *, own: bool = True
) -> Value:
    """All that is written to a target, together with what is there (`own`); where nothing is, what is there."""
    t, monoid = x.dtype, _MONOIDS.get(reduce)
    if monoid is None or (reduce == "mean" and not is_float(t)):
        raise b.refuse(f"reduce={reduce!r} of {t}")
    _bound(b, x.shape, sizes)
    extremum = monoid in ("max", "min")

    def body(i: Index, r: Index, e: dict[str, int]) -> Expr:
        return where(hit(i, r, e), written(i, r, e), x.read(i, e) if own and extremum else _neutral(monoid, t), t)

    found = b.reduce(x.shape, sizes, t, monoid, body, "written")[0]
    if own and extremum:
        return found

    def one(i: Index, r: Index, e: dict[str, int]) -> Expr:
        return where(hit(i, r, e), Const(1.0, "f32"), Const(0.0, "f32"), "f32")

    count = None if own and reduce != "mean" else b.sum(x.shape, sizes, "f32", one, "count")

    def result(i: Index, e: dict[str, int]) -> Expr:
        made = found.read(i, e)
        if own:
            made = op("mul" if monoid == "prod" else "add", x.read(i, e), made, dtype=t)
        if count is None:
            return made
        several = count.read(i, e)
        if reduce == "mean":
            made = op("div", made, Cast(op("add", several, Const(float(own), "f32"), dtype="f32"), t), dtype=t)
        return made if own else where(op("gt", several, Const(0.0, "f32"), dtype="bool"), made, x.read(i, e), t)

    return b.map(x.shape, t, result)


def _neutral(monoid: str, t: str) -> Const:
    if monoid in ("sum", "prod"):
        return number(monoid == "prod", t)
    return highest(t) if monoid == "min" else lowest(t)


def _last(b: Builder, x: Value, sizes: Sequence[int], hit: Body, written: Body) -> Value:
    """The last of what is written to a target; where nothing is, what is there."""
    _bound(b, x.shape, sizes)
    t, steps = x.dtype, row_major(sizes)

    def place(i: Index, r: Index, e: dict[str, int]) -> Expr:  # in floats, which are vectors everywhere
        flat = add(*(scale(one, step) for one, step in zip(r, steps, strict=True)), const(0))
        return where(hit(i, r, e), Position(flat, "f32"), Const(-1.0, "f32"), "f32")

    last = b.reduce(x.shape, sizes, "f32", "max", place, "last")[0]

    def body(i: Index, e: dict[str, int]) -> Expr:
        none = op("lt", last.read(i, e), Const(0.0, "f32"), dtype="bool")
        flat: Expr = Cast(op("max", last.read(i, e), Const(0.0, "f32"), dtype="f32"), "i64")
        own: Index = []
        for size, step in zip(sizes, steps, strict=True):
            at = flat if step == 1 else op("floordiv", flat, Const(step, "i64"), dtype="i64")
            at = at if len(own) == 0 else op("mod", at, Const(size, "i64"), dtype="i64")
            own.append(affine([(1, Indirect(at))]))
        return where(none, x.read(i, e), written(i, own, e), t)

    return b.map(x.shape, t, body)


def _both(one: Expr, other: Expr) -> Expr:
    return other if one == Const(True, "bool") else op("and", one, other, dtype="bool")


def _bound(b: Builder, shape: Sequence[int], sizes: Sequence[int]) -> None:
    targets, indices = math.prod(shape), math.prod(sizes)
    if targets * indices > _MOST_WORK * (targets + indices):
        raise b.refuse(
            f"{indices} indices and {targets} elements (kernels that look for every element among all indices are "
            f"generated for up to about {_MOST_WORK} of the fewer)"
        )
    if indices >= 1 << 24:
        raise b.refuse(f"{indices} indices")
