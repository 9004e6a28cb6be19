"""Reads at indices that are themselves data: embedding, index_select, gather, advanced indexing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evoforge.lowering.index import affine
from evoforge.lowering.ir import Affine, Const, Expr, Indirect
from evoforge.lowering.operators.builder import Builder, Value, is_int, op, where
from evoforge.lowering.operators.registry import register

__all__ = ["from_end"]

Index = list[Affine]


def _indirect(position: Expr) -> Affine:
    return affine([(1, Indirect(position))])


@register("embedding")
def _embedding(b: Builder, table: Value, which: Value, *_: Any, **__: Any) -> Value:
    def body(i: Index, e: dict[str, int]) -> Expr:
        return table.read([_indirect(which.read(i[:-1], e)), i[-1]], e)

    return b.map(b.out_shape(), b.out_dtype(), body)


@register("index_select")
def _index_select(b: Builder, x: Value, dim: int, which: Value) -> Value:
    dim %= max(x.rank, 1)

    def body(i: Index, e: dict[str, int]) -> Expr:
        return x.read([_indirect(which.read([one], e)) if k == dim else one for k, one in enumerate(i)], e)

    return b.map(b.out_shape(), b.out_dtype(), body)


@register("gather")
def _gather(b: Builder, x: Value, dim: int, which: Value, *_: Any, **__: Any) -> Value:
    dim %= max(x.rank, 1)

    def body(i: Index, e: dict[str, int]) -> Expr:
        return x.read([_indirect(which.read(i, e)) if k == dim else one for k, one in enumerate(i)], e)

    return b.map(b.out_shape(), b.out_dtype(), body)


@register("index.Tensor", "_unsafe_index.Tensor")
def _index(b: Builder, x: Value, indices: Sequence[Value | None]) -> Value:
    """numpy's advanced indexing with integer tensors; negative positions count from the end."""
    given = [*indices, *[None] * (x.rank - len(indices))]
    at = [dim for dim, which in enumerate(given) if which is not None]
    if any(not is_int(which.dtype) for which in given if which is not None):
        raise b.refuse("a boolean mask as index (the result's shape depends on it)")
    width = max((which.rank for which in given if which is not None), default=0)
    together = at == list(range(at[0], at[0] + len(at)))
    first = at[0] if together else 0  # where the broadcast index dimensions go

    def body(i: Index, e: dict[str, int]) -> Expr:
        shared, rest = i[first : first + width], iter([*i[:first], *i[first + width :]])
        own = []
        for dim, which in enumerate(given):
            own.append(next(rest) if which is None else _indirect(from_end(which.read(shared, e, "i64"), x.shape[dim])))
        return x.read(own, e)

    return b.map(b.out_shape(), b.out_dtype(), body)


def from_end(position: Expr, size: int) -> Expr:
    negative = op("lt", position, Const(0, "i64"), dtype="bool")
    return where(negative, op("add", position, Const(size, "i64"), dtype="i64"), position, "i64")
