"""scaled_dot_product_attention, kept whole: scores, softmax over keys, weighted values."""

from __future__ import annotations

import math

from evoforge.lowering.index import add, floordiv, scale
from evoforge.lowering.ir import Affine, Const, Expr, Position
from evoforge.lowering.operators.builder import Builder, Value, op, where
from evoforge.lowering.operators.contractions import product_sum
from evoforge.lowering.operators.reductions import softmax_of
from evoforge.lowering.operators.registry import register

__all__: list[str] = []

Index = list[Affine]


@register("scaled_dot_product_attention")
def _attention(
    b: Builder,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    """q [..., L, E], k [..., S, E], v [..., S, Ev]; a query that may see no key gives zeros."""
    if dropout:
        raise b.refuse("dropout_p > 0 (put the model in eval mode)")
    t = b.out_dtype()
    if enable_gqa:
        k, v = (_repeat_heads(side, q.shape[-3] // side.shape[-3]) for side in (k, v))
    factor = 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale
    batch = "abcdefgh"[: max(q.rank, k.rank, v.rank) - 2]
    letters = [batch[len(batch) - (side.rank - 2) :] for side in (q, k, v)]
    scores = product_sum(b, q, k, letters[0] + "le", letters[1] + "se", batch + "ls", t, "scores")
    scaled = _scaled_and_masked(b, scores, factor, mask, is_causal, t)
    weights = softmax_of(b, scaled, -1, t, safe=mask is not None)
    return product_sum(b, weights, v, batch + "ls", letters[2] + "se", batch + "le", t)


def _repeat_heads(side: Value, times: int) -> Value:
    heads = side.rank - 3
    shape = (*side.shape[:heads], side.shape[heads] * times, *side.shape[heads + 1 :])
    extents = {f"d{dim}": size for dim, size in enumerate(shape)}
    index = [Affine(((1, f"d{dim}"),)) for dim in range(side.rank)]
    index[heads] = floordiv(index[heads], times, extents)
    return side.viewed(shape, index)


def _scaled_and_masked(b: Builder, scores: Value, factor: float, mask: Value | None, is_causal: bool, t: str) -> Value:
    never = Const(-math.inf, t)

    def body(i: Index, e: dict[str, int]) -> Expr:
        score: Expr = op("mul", scores.read(i, e), Const(factor, t), dtype=t)
        if mask is not None and mask.dtype == "bool":
            score = where(mask.read(i, e), score, never, t)
        elif mask is not None:
            score = op("add", score, mask.read(i, e, t), dtype=t)
        if is_causal:
            ahead = Position(add(i[-2], scale(i[-1], -1)), "i64")  # query − key, below 0 for a key to come
            score = where(op("ge", ahead, Const(0, "i64"), dtype="bool"), score, never, t)
        return score

    return b.map(scores.shape, t, body, "masked" if mask is not None or is_causal else "scaled")
