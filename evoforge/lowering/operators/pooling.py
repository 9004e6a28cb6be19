"""Pooling: a reduction over the window; outside the input −inf for max, 0 for averages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from evoforge.lowering.index import add, const, floordiv, scale
from evoforge.lowering.ir import Affine, Cast, Const, Expr, Guard, Position
from evoforge.lowering.operators.builder import Builder, Value, op
from evoforge.lowering.operators.registry import register
from evoforge.lowering.operators.views import behind, guarded

__all__: list[str] = []

Index = list[Affine]
Sizes = Sequence[int] | int


def _each(sizes: Sizes | None, rank: int, default: Sequence[int]) -> list[int]:
    if sizes is None or (not isinstance(sizes, int) and len(sizes) == 0):
        return list(default)
    values = [sizes] if isinstance(sizes, int) else list(sizes)
    return values if len(values) == rank else values * rank


def _rank(b: Builder) -> int:
    return int(b.origin.split("d_with")[0].split("d.")[0][-1])


@register("max_pool1d", "max_pool2d", "max_pool3d", "max_pool1d_with_indices", "max_pool2d_with_indices",
          "max_pool3d_with_indices")  # fmt: skip
def _max_pool(
    b: Builder,
    x: Value,
    kernel: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
) -> Any:
    """Values, and for ``_with_indices`` the position in the flattened input plane."""
    rank, several = _rank(b), "with_indices" in b.origin
    t, shape = b.out_dtype(0 if several else None), b.out_shape(0 if several else None)
    kernel = _each(kernel, rank, [])
    stride = _each(stride, rank, kernel)
    padding, dilation = _each(padding, rank, [0] * rank), _each(dilation, rank, [1] * rank)
    lead = len(shape) - rank

    def place(i: Index, r: Index) -> Index:
        return [add(scale(i[lead + k], stride[k]), const(-padding[k]), scale(r[k], dilation[k])) for k in range(rank)]

    def body(i: Index, r: Index, e: dict[str, int]) -> Expr:
        return guarded(x, [*i[:lead], *place(i, r)], e, -math.inf)

    if not several:
        return b.reduce(shape, kernel, t, "max", body)[0]
    best, at = b.reduce(shape, kernel, t, "argmax", body)
    return best, _plane_position(b, at, x.shape[lead:], kernel, stride, padding, dilation, lead)


def _plane_position(
    b: Builder,
    at: Value,
    plane: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    lead: int,
) -> Value:
    """Turns the position inside the window into one inside the plane."""

    def integer(value: int) -> Const:
        return Const(value, "i64")

    def body(i: Index, e: dict[str, int]) -> Expr:
        total: Expr = integer(0)
        for k in range(len(kernel)):
            inner = math.prod(kernel[k + 1 :])
            part = op(
                "mod", op("floordiv", at.read(i, e), integer(inner), dtype="i64"), integer(kernel[k]), dtype="i64"
            )
            base = Position(add(scale(i[lead + k], stride[k]), const(-padding[k])), "i64")
            here = op("add", base, op("mul", part, integer(dilation[k]), dtype="i64"), dtype="i64")
            total = op("add", op("mul", total, integer(plane[k]), dtype="i64"), here, dtype="i64")
        return total

    return b.map(at.shape, "i64", body, "indices")


@register("avg_pool1d", "avg_pool2d", "avg_pool3d")
def _avg_pool(
    b: Builder,
    x: Value,
    kernel: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> Value:
    rank, t, shape = _rank(b), b.out_dtype(), b.out_shape()
    kernel = _each(kernel, rank, [])
    stride = _each(stride, rank, kernel)
    padding = _each(padding, rank, [0] * rank)
    lead = len(shape) - rank
    plane = x.shape[lead:]

    def body(i: Index, r: Index, e: dict[str, int]) -> Expr:
        at = [add(scale(i[lead + k], stride[k]), const(-padding[k]), r[k]) for k in range(rank)]
        return guarded(x, [*i[:lead], *at], e, 0.0)

    total = b.sum(shape, kernel, t, body, "sum")
    edge = [padding[k] if count_include_pad else 0 for k in range(rank)]

    def by(i: Index) -> Expr:
        """How many places of the window count: inside the input, or inside its padded border."""
        count: Expr | None = None
        for k in range(rank):
            start = add(scale(i[lead + k], stride[k]), const(-padding[k]))
            last = (shape[lead + k] - 1) * stride[k] - padding[k] + kernel[k]
            low, high = -edge[k], plane[k] + edge[k]
            if -padding[k] >= low and last <= high:
                size: Expr = Const(kernel[k], "i64")
            else:
                end = op("min", Position(add(start, const(kernel[k])), "i64"), Const(high, "i64"), dtype="i64")
                begin = op("max", Position(start, "i64"), Const(low, "i64"), dtype="i64")
                size = op("sub", end, begin, dtype="i64")
            count = size if count is None else _times(count, size)
        return count if count is not None else Const(1, "i64")

    def quotient(i: Index, e: dict[str, int]) -> Expr:
        count = Const(divisor, "i64") if divisor else by(i)
        number = Const(float(count.value), t) if isinstance(count, Const) else Cast(count, t)
        return op("div", total.read(i, e), number, dtype=t)

    return b.map(shape, t, quotient)


def _times(left: Expr, right: Expr) -> Expr:
    if isinstance(left, Const) and isinstance(right, Const):
        return Const(int(left.value) * int(right.value), "i64")
    return op("mul", left, right, dtype="i64")


@register("adaptive_avg_pool1d", "adaptive_avg_pool2d", "_adaptive_avg_pool2d", "adaptive_avg_pool3d",
          "_adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")  # fmt: skip
def _adaptive(b: Builder, x: Value, size: Sizes) -> Any:
    """Window k of n covers [⌊k·in/n⌋, ⌈(k+1)·in/n⌉); windows of different sizes are guarded."""
    several = "max" in b.origin
    t, shape = b.out_dtype(0 if several else None), b.out_shape(0 if several else None)
    rank = _rank(b)
    lead = len(shape) - rank
    plane, out = x.shape[lead:], shape[lead:]
    even = [plane[k] % out[k] == 0 for k in range(rank)]
    window = [max(-(-((o + 1) * n) // m) - o * n // m for o in range(m)) for n, m in zip(plane, out, strict=True)]

    def start(i: Index, e: dict[str, int], k: int) -> Affine:
        return floordiv(scale(i[lead + k], plane[k]), out[k], e)

    def end(i: Index, e: dict[str, int], k: int) -> Affine:
        return floordiv(add(scale(i[lead + k], plane[k]), const(plane[k] + out[k] - 1)), out[k], e)

    def body(i: Index, r: Index, e: dict[str, int]) -> Expr:
        at = [add(start(i, e, k), r[k]) for k in range(rank)]
        other = -math.inf if several else 0.0
        read = guarded(x, [*i[:lead], *at], e, other)
        inside = [Guard(add(end(i, e, k), const(-1), scale(at[k], -1))) for k in range(rank)]
        return behind(read, inside, e, other, x.dtype)

    if several:
        best, position = b.reduce(shape, window, t, "argmax", body)
        return best, _adaptive_position(b, position, plane, window, start, lead)
    total = b.sum(shape, window, t, body, "sum")

    def quotient(i: Index, e: dict[str, int]) -> Expr:
        count: Expr = Const(1, "i64")
        for k in range(rank):
            length = add(end(i, e, k), scale(start(i, e, k), -1))
            here: Expr = Const(window[k], "i64") if even[k] else Position(length, "i64")
            count = here if count == Const(1, "i64") else _times(count, here)
        number = Const(float(count.value), t) if isinstance(count, Const) else Cast(count, t)
        return op("div", total.read(i, e), number, dtype=t)

    return b.map(shape, t, quotient)


def _adaptive_position(
    b: Builder, at: Value, plane: Sequence[int], window: Sequence[int], start: Any, lead: int
) -> Value:
    def body(i: Index, e: dict[str, int]) -> Expr:
        total: Expr = Const(0, "i64")
        for k in range(len(window)):
            inner = Const(math.prod(window[k + 1 :]), "i64")
            part = op("mod", op("floordiv", at.read(i, e), inner, dtype="i64"), Const(window[k], "i64"), dtype="i64")
            here = op("add", Position(start(i, e, k), "i64"), part, dtype="i64")
            total = op("add", op("mul", total, Const(plane[k], "i64"), dtype="i64"), here, dtype="i64")
        return total

    return b.map(at.shape, "i64", body, "indices")
