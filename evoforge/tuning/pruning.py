"""When a trial has shown that it will not win."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["signed_rank_p", "wilcoxon_prunes"]

_MIN_BLOCKS = 4
_EXACT = 20  # differences beyond which only the latest are used; the exact test stays cheap


def wilcoxon_prunes(
    log_ratios: Sequence[float],
    best: float | Sequence[float],
    *,
    alpha: float = 0.1,
    min_blocks: int = _MIN_BLOCKS,
) -> bool:
    """Whether the blocks seen so far are significantly below the best ones.

    `log_ratios` holds, per block, log2(baseline / candidate), both from the same block, so that the
    machine's mood cancels. `best` is what has to be beaten: one log2 ratio, or one per block
    (compared in order, up to the shorter length). One-sided Wilcoxon signed-rank test; four blocks,
    all below, give p = 1/16, the smallest that four can give.
    """
    bests = [best] * len(log_ratios) if isinstance(best, int | float) else list(best)
    differences = [own - other for own, other in zip(log_ratios, bests, strict=False)]
    return len(differences) >= min_blocks and signed_rank_p(differences) < alpha


def signed_rank_p(differences: Sequence[float]) -> float:
    """P(positive rank sum ≤ the observed one) under symmetry about 0, exact, ties and all.

    Zeros carry no sign and are dropped (Wilcoxon 1945); tied magnitudes share their mean rank.
    Without any difference p is 1. Of more than 20 differences the last 20 count.
    """
    signed = [value for value in differences if value != 0][-_EXACT:]
    sizes = sorted(abs(value) for value in signed)
    # Twice the mean rank is an integer: first position + last position, counted from 1.
    doubled = {size: 2 * sizes.index(size) + 1 + sizes.count(size) for size in sizes}
    ranks = [doubled[abs(value)] for value in signed]
    observed = sum(rank for rank, value in zip(ranks, signed, strict=True) if value > 0)
    ways = [1] + [0] * sum(ranks)
    for rank in ranks:
        for total in range(len(ways) - 1, rank - 1, -1):
            ways[total] += ways[total - rank]
    return float(sum(ways[: observed + 1]) / 2 ** len(ranks))
