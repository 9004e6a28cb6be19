"""Running sums, products and extrema."""

from __future__ import annotations

from typing import Any

from evoforge.lowering.operators.builder import Builder, Value
from evoforge.lowering.operators.registry import register

__all__: list[str] = []


@register("cumsum", "cumprod")
def _cumulative(b: Builder, x: Value, dim: int, **_: Any) -> Value:
    """In the result's dtype: integers and booleans accumulate in int64."""
    t = b.out_dtype()
    if x.rank == 0:
        return b.map((), t, lambda index, extents: x.read(index, extents, t))
    return b.scan(x, dim % x.rank, t, "sum" if "cumsum" in b.origin else "prod")
