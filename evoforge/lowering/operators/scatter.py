"""Writes at indices that are themselves data, turned round: every target looks for what is written to it.

So no two threads write to one place and sums have an order, for as many comparisons as there are targets times
indices, which is why these are bounded. Where several are written to one place the last one stays, as in torch on the
CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from evoforge.lowering.index import add, affine, const, scale
from evoforge.lowering.ir import Affine, Cast, Const, Expr, Guard, Indirect, Position
from evoforge.lowering.operators.builder import Builder, Value, number, op, where
from evoforge.lowering.operators.indexing import from_end
from evoforge.lowering.operators.registry import register
from evoforge.lowering.operators.views import behind, reshaped
from evoforge.lowering.stages import row_major

__all__: list[str] = []

Index = list[Affine]
Body = Callable[[Index, Index, dict[str, int]], Expr]
"""Of a target's index and a place among the indices."""

_MOST_WORK = 512
"""Comparisons for every element that is read or written, beyond which torch is faster whatever the schedule."""
_MONOIDS = {"sum": "sum", "prod": "prod", "amax": "max", "amin": "min"}
_NEUTRAL = {"sum": (0, "add"), "prod": (1, "mul")}


@register("scatter.src", "scatter.value")
def _scatter(b: Builder, x: Value, dim: int, at: Value, source: Value | float | int | bool) -> Value:
    x, at, dim, new = _rows(b, x, dim, at, source)
    return reshaped(_last(b, x, [at.shape[dim]], _hits(x, dim, at), lambda i, r, e: new(i, r[0], e)), b.out_shape())


@register("scatter_add")
def _scatter_add(b: Builder, x: Value, dim: int, at: Value, source: Value) -> Value:
    return _scatter_reduce(b, x, dim, at, source, "sum")


@register("scatter_reduce.two")
def _scatter_reduce(
    b: Builder, x: Value, dim: int, at: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Value:
    if reduce not in _MONOIDS or not include_self:
        raise b.refuse("anything but sums, products, maxima and minima of all that is there")
    x, at, dim, new = _rows(b, x, dim, at, source)
    found = _joined(b, x, [at.shape[dim]], _hits(x, dim, at), lambda i, r, e: new(i, r[0], e), reduce)
    return reshaped(found, b.out_shape())


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
        return _joined(b, x, sizes, hit, written, "sum")
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


def _joined(b: Builder, x: Value, sizes: Sequence[int], hit: Body, written: Body, reduce: str) -> Value:
    """What is at a target together with all that is written to it."""
    _bound(b, x, sizes)
    t = x.dtype
    neutral, name = _NEUTRAL.get(reduce, (None, ""))

    def body(i: Index, r: Index, e: dict[str, int]) -> Expr:
        other = x.read(i, e) if neutral is None else number(neutral, t)
        return where(hit(i, r, e), written(i, r, e), other, t)

    found = b.reduce(x.shape, sizes, t, _MONOIDS[reduce], body, "written")[0]
    if neutral is None:
        return found
    return b.map(x.shape, t, lambda i, e: op(name, x.read(i, e), found.read(i, e), dtype=t))


def _last(b: Builder, x: Value, sizes: Sequence[int], hit: Body, written: Body) -> Value:
    """The last of what is written to a target; where nothing is, what is there."""
    _bound(b, x, sizes)
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


def _bound(b: Builder, x: Value, sizes: Sequence[int]) -> None:
    targets, indices = math.prod(x.shape), math.prod(sizes)
    if targets * indices > _MOST_WORK * (targets + indices):
        raise b.refuse(
            f"{indices} indices and {targets} elements (kernels that look for every element among all indices are "
            f"generated for up to about {_MOST_WORK} of the fewer)"
        )
    if indices >= 1 << 24:
        raise b.refuse(f"{indices} indices")
