"""Running sums, products, extrema and logarithms of sums of exponentials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evoforge.lowering.ir import Affine, Const, Expr, Position, Where
from evoforge.lowering.operators.builder import Builder, Value, op
from evoforge.lowering.operators.registry import register

__all__: list[str] = []


_RUNNING = {"cumsum": "sum", "cumprod": "prod", "logcumsumexp": "logsum"}


@register(*_RUNNING)
def _cumulative(b: Builder, x: Value, dim: int, **_: Any) -> Value:
    """In the result's dtype: integers and booleans accumulate in int64."""
    t = b.out_dtype()
    if x.rank == 0:
        return b.map((), t, lambda index, extents: x.read(index, extents, t))
    return b.scan(x, dim % x.rank, t, _RUNNING[b.origin.split(".")[1]])


@register("cummax", "cummin")
def _extrema(b: Builder, x: Value, dim: int) -> tuple[Value, Value]:
    """Running extrema and where they are; of equal ones, and of NaNs, the latest."""
    t = "i64" if x.dtype == "bool" else x.dtype
    if x.rank == 0:
        at = b.map((), "i64", lambda index, extents: Const(0, "i64"))
        return b.map((), x.dtype, lambda index, extents: x.read(index, extents, x.dtype)), at
    dim %= x.rank
    monoid = "max" if "cummax" in b.origin else "min"
    running = b.scan(x, dim, t, monoid)

    def latest(index: Sequence[Affine], extents: dict[str, int]) -> Expr:
        here = x.read(index, extents, t)
        taken = op("eq", here, running.read(index, extents, t), dtype="bool")
        if t in ("f32", "f64", "f16", "bf16"):
            taken = op("or", taken, op("isnan", here, dtype="bool"), dtype="bool")
        return Where(taken, Position(index[dim], "i64"), Const(-1, "i64"), "i64")

    where = b.scan(b.map(x.shape, "i64", latest), dim, "i64", "max")
    if t == x.dtype:
        return running, where
    return b.map(x.shape, x.dtype, lambda index, extents: running.read(index, extents, x.dtype)), where
