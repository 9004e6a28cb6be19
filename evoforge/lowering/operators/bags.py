"""Bags of embeddings: sums, means and maxima of rows that are looked up, for bags of one length.

Bags whose lengths are data (offsets as an input) are refused: a loop's length does not depend on values here.
"""

from __future__ import annotations

import math
from typing import Any

from evoforge.lowering.index import add, affine, axis, scale
from evoforge.lowering.ir import Affine, Const, Expr, Indirect, Position
from evoforge.lowering.operators.builder import Builder, Value, number, op, where
from evoforge.lowering.operators.registry import register

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
        raise b.refuse("offsets that are data, or bags of several lengths (give it indices of two dimensions)")
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
