"""Questions about stages and graphs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from evoforge.core import DTYPES
from evoforge.lowering.ir import Cast, Const, Expr, Graph, Load, Op, Position, Stage, Tensor, Where, loads, nodes

__all__ = [
    "CHEAP", "dtype_of", "else_value", "extents_of", "factors", "is_sum", "operations", "product", "readers",
    "row_major",
]  # fmt: skip

CHEAP = 8
"""Operations that are worth doing again wherever their result is read."""


def extents_of(stage: Stage) -> dict[str, int]:
    """Axis name → extent, reduction axes included."""
    return {a.name: a.extent for a in (*stage.axes, *stage.reduction)}


def dtype_of(expr: Expr, tensors: Mapping[str, Tensor]) -> str:
    """The dtype of an expression's value."""
    if isinstance(expr, Load):
        return tensors[expr.tensor].dtype
    assert isinstance(expr, Const | Position | Op | Cast | Where)
    return expr.dtype


def else_value(value: float, dtype: str) -> float | int | bool:
    """A guard's else-value in an integer dtype: ±inf becomes the dtype's limits."""
    if dtype in ("f32", "f64", "f16", "bf16"):
        return value
    if dtype == "bool":
        return value > 0
    bits = 8 * DTYPES[dtype]
    low, high = (0, 2**bits - 1) if dtype == "u8" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return int(min(max(value, low), high)) if math.isfinite(value) else (high if value > 0 else low)


def is_sum(expr: Any) -> bool:
    """Whether an expression is a sum or a difference."""
    return isinstance(expr, Op) and expr.name in ("add", "sub")


def readers(graph: Graph, tensor: str) -> list[Stage]:
    """The stages that load `tensor`."""
    return [stage for stage in graph.stages if any(load.tensor == tensor for load in loads(stage.body))]


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a contiguous tensor, in elements."""
    return tuple(math.prod(shape[dim + 1 :]) for dim in range(len(shape)))


def factors(expr: Expr) -> list[Expr]:
    """What a product of f32 is made of."""
    if isinstance(expr, Op) and expr.name == "mul" and expr.dtype == "f32":
        return [factor for arg in expr.args for factor in factors(arg)]
    return [expr]


def product(factors: Sequence[Expr]) -> Expr:
    """The inverse of `factors`."""
    return reduce(lambda a, b: Op("mul", (a, b), "f32"), factors)


def operations(expr: Any) -> int:
    """How many operators an expression holds."""
    return sum(isinstance(node, Op | Cast | Where) for node in nodes(expr))
