"""Order along a dimension: the place of an element is the number of those that come before it.

Of n elements that takes n² comparisons, but in vectors and without a branch, so n is bounded. The first few of many
are found one after the other. Equal elements stay in their order, and NaN is larger than everything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from evoforge.lowering.index import add, affine, const, scale
from evoforge.lowering.ir import Affine, Cast, Const, Expr, Indirect, Position
from evoforge.lowering.operators.builder import Builder, Value, highest, is_float, lowest, op, where
from evoforge.lowering.operators.registry import register
from evoforge.lowering.operators.views import choose, reshaped

__all__: list[str] = []

Index = list[Affine]

_LONGEST = 512
_FEW = 64
_MOST = 1 << 23  # twice as many places are counted, and floats hold 2²⁴
_ONE, _NONE = Const(1.0, "f32"), Const(0.0, "f32")  # places are counted in floats, which are vectors everywhere


@register("sort", "sort.stable", "argsort", "argsort.stable", "msort")
def _sort(b: Builder, x: Value, dim: int = -1, descending: bool = False, *, stable: bool | None = None) -> Any:
    name = b.origin.split(".")[1]
    dim = 0 if name == "msort" else dim
    values, at = _ordered(b, x, dim, range(x.shape[dim] if x.rank else 1), descending)
    return {"argsort": at, "msort": values}.get(name, (values, at))


@register("topk")
def _topk(b: Builder, x: Value, k: int, dim: int = -1, largest: bool = True, _: bool = True) -> tuple[Value, Value]:
    return _ordered(b, x, dim, range(k), largest)


def _first(b: Builder, x: Value, dim: int, wanted: range, descending: bool) -> tuple[Value, Value]:
    """What `_ordered` says of the first few, found one after the other."""
    if x.shape[dim] > _MOST:
        raise b.refuse(f"{x.shape[dim]} elements along the dimension (kernels number up to {_MOST})")
    found: list[tuple[Value, Value]] = []
    for _ in range(wanted.stop):
        found.append((_next if descending else _next_smallest)(b, x, dim, found[-1] if found else None))
    full = (*x.shape[:dim], len(wanted), *x.shape[dim + 1 :])
    values, places = zip(*found[wanted.start :], strict=True)
    return (
        b.map(full, x.dtype, lambda i, e: choose(values, dim, i, e, x.dtype)),
        b.map(full, "i64", lambda i, e: choose(places, dim, i, e, "i64")),
    )


def _next(b: Builder, x: Value, dim: int, last: tuple[Value, Value] | None) -> tuple[Value, Value]:
    """The largest of what comes after `last` (of all), and the first place that has it."""
    shape, size = (*x.shape[:dim], 1, *x.shape[dim + 1 :]), x.shape[dim]
    t = "i32" if x.dtype == "bool" else x.dtype

    def left(i: Index, r: Index, e: dict[str, int]) -> Expr:
        here = x.read(_put(i, dim, r[0]), e, t)
        return where(_after(last, here, i, r, e, t), here, lowest(t), t)

    best = b.reduce(shape, [size], t, "max", left, "best")[0]

    def at(i: Index, r: Index, e: dict[str, int]) -> Expr:
        here, value = x.read(_put(i, dim, r[0]), e, t), best.read(i, e)
        differs = op("or", _larger(here, value, t), _larger(value, here, t), dtype="bool")
        same = op("and", op("not", differs, dtype="bool"), _after(last, here, i, r, e, t), dtype="bool")
        return where(same, Position(r[0], "f32"), Const(float(size), "f32"), "f32")

    return best, b.reduce(shape, [size], "f32", "min", at, "place")[0]


def _next_smallest(b: Builder, x: Value, dim: int, last: tuple[Value, Value] | None) -> tuple[Value, Value]:
    """The same of the smallest. NaN is found as ∞, and behind every ∞."""
    shape, size = (*x.shape[:dim], 1, *x.shape[dim + 1 :]), x.shape[dim]
    t = "i32" if x.dtype == "bool" else x.dtype

    def nan(here: Expr) -> Expr:
        return op("isnan", here, dtype="bool") if is_float(t) else Const(False, "bool")

    def left(i: Index, r: Index, e: dict[str, int]) -> Expr:
        here = x.read(_put(i, dim, r[0]), e, t)
        kept = op("and", _after(last, here, i, r, e, t, -1), op("not", nan(here), dtype="bool"), dtype="bool")
        return where(kept, here, highest(t), t)

    best = b.reduce(shape, [size], t, "min", left, "best")[0]

    def at(i: Index, r: Index, e: dict[str, int]) -> Expr:
        here = x.read(_put(i, dim, r[0]), e, t)
        same = op("eq", where(nan(here), highest(t), here, t), best.read(i, e), dtype="bool")
        same = op("and", same, _after(last, here, i, r, e, t, -1), dtype="bool")
        place, behind = Position(r[0], "f32"), where(nan(here), Const(float(size), "f32"), _NONE, "f32")
        return where(same, op("add", place, behind, dtype="f32"), Const(2.0 * size, "f32"), "f32")

    found = b.reduce(shape, [size], "f32", "min", at, "place")[0]

    def place(i: Index, e: dict[str, int]) -> Expr:
        value, count = found.read(i, e), Const(float(size), "f32")
        return where(op("ge", value, count, dtype="bool"), op("sub", value, count, dtype="f32"), value, "f32")

    def value(i: Index, e: dict[str, int]) -> Expr:
        at = Cast(places.read(i, e), "i64")
        return x.read(_put(i, dim, affine([(1, Indirect(at))])), e, t)

    places = b.map(shape, "f32", place)
    return b.map(shape, t, value), places


def _after(
    last: tuple[Value, Value] | None, here: Expr, i: Index, r: Index, e: dict[str, int], t: str, sign: int = 1
) -> Expr:
    """Whether an element comes after the last one found; of the smallest, where `sign` is −1."""
    if last is None:
        return Const(True, "bool")
    value, place = last[0].read(i, e), last[1].read(i, e)
    behind, before = _larger(value, here, t), _larger(here, value, t)
    if sign < 0:
        behind, before = before, behind
    later = op("gt", Position(r[0], "f32"), place, dtype="bool")
    equal = op("and", op("not", before, dtype="bool"), later, dtype="bool")
    return op("or", behind, equal, dtype="bool")


@register("kthvalue")
def _kthvalue(b: Builder, x: Value, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    values, at = _ordered(b, x, dim, range(k - 1, k), False)
    return reshaped(values, b.out_shape(0)), reshaped(at, b.out_shape(1))


@register("median", "median.dim")
def _median(b: Builder, x: Value, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower one of two in the middle; NaN where there is one."""
    if dim is None:
        values, _ = _middle(b, reshaped(x, (math.prod(x.shape),)), 0)
        return reshaped(values, ())
    values, at = _middle(b, x, dim)
    return reshaped(values, b.out_shape(0)), reshaped(at, b.out_shape(1))


def _middle(b: Builder, x: Value, dim: int) -> tuple[Value, Value]:
    x, dim = _with_dims(x, dim)
    size, t = x.shape[dim], x.dtype
    values, at = _ordered(b, x, dim, range((size - 1) // 2, (size - 1) // 2 + 1), False)
    if not is_float(t):
        return values, at
    top, first = b.reduce(values.shape, [size], t, "argmax", lambda i, r, e: x.read(_put(i, dim, r[0]), e), "top")

    def chosen(nan: Value, other: Value) -> Value:
        def body(i: Index, e: dict[str, int]) -> Expr:
            return where(op("isnan", top.read(i, e), dtype="bool"), nan.read(i, e), other.read(i, e), nan.dtype)

        return b.map(values.shape, nan.dtype, body)

    return chosen(top, values), chosen(first, at)


def _ordered(b: Builder, x: Value, dim: int, places: range, descending: bool) -> tuple[Value, Value]:
    """The elements at consecutive places along `dim`, and where they were."""
    shape = x.shape
    x, dim = _with_dims(x, dim)
    if x.shape[dim] > _LONGEST and places and places.stop <= _FEW:
        return _first(b, x, dim, places, descending)
    place = _places(b, x, dim, descending)
    found = (*x.shape[:dim], len(places), *x.shape[dim + 1 :])

    def position(i: Index, r: Index, e: dict[str, int]) -> Expr:
        wanted = Position(add(i[dim], const(places.start)), "f32")
        here = op("eq", place.read(_put(i, dim, r[0]), e), wanted, dtype="bool")
        return where(here, Position(r[0], "f32"), _NONE, "f32")

    counted = b.sum(found, [x.shape[dim]], "f32", position, "found")
    at = b.map(found, "i64", lambda i, e: Cast(counted.read(i, e), "i64"), "at")

    def value(i: Index, e: dict[str, int]) -> Expr:
        return x.read(_put(i, dim, affine([(1, Indirect(at.read(i, e)))])), e)

    values = b.map(found, x.dtype, value)
    return (values, at) if shape else (reshaped(values, ()), reshaped(at, ()))


def _places(b: Builder, x: Value, dim: int, descending: bool) -> Value:
    size = x.shape[dim]
    if size > _LONGEST:
        raise b.refuse(
            f"{size} elements along the dimension (kernels that sort are generated for up to {_LONGEST}, "
            f"and topk and kthvalue for up to the first {_FEW} of more)"
        )
    t = "i32" if x.dtype == "bool" else x.dtype

    def body(i: Index, r: Index, e: dict[str, int]) -> Expr:
        here, other = x.read(i, e, t), x.read(_put(i, dim, r[0]), e, t)
        before, behind = _larger(here, other, t), _larger(other, here, t)
        if descending:
            before, behind = behind, before
        earlier = op("lt", Position(add(r[0], scale(i[dim], -1)), "i64"), Const(0, "i64"), dtype="bool")
        equal = op("and", op("not", behind, dtype="bool"), earlier, dtype="bool")
        return where(op("or", before, equal, dtype="bool"), _ONE, _NONE, "f32")

    return b.sum(x.shape, [size], "f32", body, "place")


def _larger(x: Expr, y: Expr, t: str) -> Expr:
    larger = op("gt", x, y, dtype="bool")
    if not is_float(t):
        return larger
    number = op("not", op("isnan", y, dtype="bool"), dtype="bool")
    return op("or", larger, op("and", op("isnan", x, dtype="bool"), number, dtype="bool"), dtype="bool")


def _with_dims(x: Value, dim: int) -> tuple[Value, int]:
    """A value of at least one dimension, and `dim` counted from its first."""
    return (x, dim % x.rank) if x.rank else (reshaped(x, (1,)), 0)


def _put(index: Sequence[Affine], dim: int, one: Affine) -> Index:
    return [*index[:dim], one, *index[dim + 1 :]]
