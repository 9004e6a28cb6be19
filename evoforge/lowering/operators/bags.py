"""Bags of embeddings: sums, means and maxima of rows that are looked up.

A loop's length does not depend on values here: where those of bags do (offsets as an input), every bag looks at all
indices for its own, which bounds how many there may be.
"""

from __future__ import annotations

import math
from typing import Any

from evoforge.lowering.index import add, affine, axis, const, scale
from evoforge.lowering.ir import Affine, Cast, Const, Expr, Indirect, Position
from evoforge.lowering.operators.builder import Builder, Value, number, op, where
from evoforge.lowering.operators.registry import register
from evoforge.lowering.operators.scatter import joined
from evoforge.lowering.operators.views import guarded

__all__: list[str] = []

Index = list[Affine]

_MODES = ("sum", "mean", "max")


@register("embedding_bag.padding_idx", "embedding_bag", "_embedding_bag_forward_only", "_embedding_bag")
def _embedding_bag(
    b: Builder, table: Value, which: Value, offsets: Value, _: bool = False, mode: int = 0, sparse: bool = False,
    weights: Value | None = None, include_last_offset: bool = False, padding: int | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    """The first of torch's four results; the others are for its backward pass."""
    shape, t = b.out_shape(0), b.out_dtype(0)
    length = which.shape[0] // max(shape[0], 1)
    if offsets.expr != Position(scale(axis("d0"), length), offsets.dtype) or length * shape[0] != which.shape[0]:
        return _ragged(b, table, which, offsets, mode, weights, padding), None, None, None
    skips = padding is not None and padding >= 0
    empty = -math.inf if mode == 2 else 0.0

    def kept(i: Index, r: Index, e: dict[str, int]) -> tuple[Affine, Expr]:
        at = add(scale(i[0], length), r[0])
        row = which.read([at], e)
        return at, op("ne", row, Const(padding or 0, which.dtype), dtype="bool")

    def body(i: Index, r: Index, e: dict[str, int]) -> Expr:
        at, wanted = kept(i, r, e)
        value = table.read([affine([(1, Indirect(which.read([at], e)))]), i[1]], e, t)
        if weights is not None:
            value = op("mul", value, weights.read([at], e, t), dtype=t)
        return where(wanted, value, number(empty, t), t) if skips else value

    found = b.reduce(shape, [length], t, "max" if mode == 2 else "sum", body, _MODES[mode])[0]
    if mode == 0 or (mode == 2 and not skips):
        return found, None, None, None
    if not skips:
        return b.map(shape, t, lambda i, e: op("div", found.read(i, e), number(length, t), dtype=t)), None, None, None
    count = b.sum(
        shape[:1], [length], t, lambda i, r, e: where(kept(i, r, e)[1], number(1, t), number(0, t), t), "count"
    )

    def finished(i: Index, e: dict[str, int]) -> Expr:
        size, value = count.read(i[:1], e), found.read(i, e)
        none = op("eq", size, number(0, t), dtype="bool")
        return where(none, number(0, t), value if mode == 2 else op("div", value, size, dtype=t), t)

    return b.map(shape, t, finished), None, None, None


def _ragged(
    b: Builder, table: Value, which: Value, offsets: Value, mode: int, weights: Value | None, padding: int | None
) -> Value:
    """A bag reaches from its own offset to the next one, if there is one; an empty one is 0."""
    shape, t, count = b.out_shape(0), b.out_dtype(0), which.shape[0]

    def hit(i: Index, r: Index, e: dict[str, int]) -> Expr:
        here, start = Position(r[0], "i64"), offsets.read([i[0]], e, "i64")
        end: Expr = guarded(offsets, [add(i[0], const(1))], e, float(count))
        end = end if offsets.dtype == "i64" else Cast(end, "i64")
        inside = op("and", op("ge", here, start, dtype="bool"), op("lt", here, end, dtype="bool"), dtype="bool")
        if padding is None or padding < 0:
            return inside
        kept = op("ne", which.read([r[0]], e), Const(padding, which.dtype), dtype="bool")
        return op("and", inside, kept, dtype="bool")

    def written(i: Index, r: Index, e: dict[str, int]) -> Expr:
        value = table.read([affine([(1, Indirect(which.read([r[0]], e)))]), i[1]], e, t)
        return value if weights is None else op("mul", value, weights.read([r[0]], e, t), dtype=t)

    how = ("sum", "mean", "amax")[mode]
    return joined(b, Value(shape, number(0, t), t), [count], hit, written, how, own=how == "sum")
