"""Where the results of sums are read: a triangle of a product reads half of it, and elsewhere nobody needs the sums."""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING, Any

from evoforge.lowering.index import add, const, position, scale
from evoforge.lowering.ir import Affine, Expr, Load, Op, Where, loads, parts

if TYPE_CHECKING:
    from evoforge.lowering.nests import Pass

__all__ = ["where_read"]


def where_read(one: Pass) -> tuple[Affine, ...]:
    """Indices of which some one is at least 0 wherever a sum of a pass is read; none of them: no place is known where
    it is not."""
    sums = {out for node in one.reduces for out in node.outputs if out}
    found: dict[Affine | None, None] = {}
    if sums & set(one.row_stores):
        return ()
    for node in one.row_maps:
        masks = _masks(node.body, sums)
        if None in masks:
            sums |= {out for out in node.outputs if out}  # as good as the sums
            if sums & set(one.row_stores):
                return ()
        found |= dict.fromkeys(masks)
    return tuple(index for index in found if index is not None)


def _masks(expr: Any, sums: Set[str]) -> list[Affine | None]:
    """What decides about each reading of `sums` in an expression, of the innermost choices; None: nothing."""
    match expr:
        case Load():
            return [None for load in loads(expr) if load.tensor in sums]
        case Where(condition, then, other) if (holds := _holds(condition)) is not None:
            fails = add(scale(holds, -1), const(-1))
            sides = ((then, holds), (other, fails))
            return [at if inner is None else inner for side, at in sides for inner in _masks(side, sums)]
        case tuple():
            return [mask for part in expr for mask in _masks(part, sums)]
    return [mask for part in parts(expr) for mask in _masks(part, sums)]


def _holds(condition: Expr) -> Affine | None:
    """An index that is at least 0 exactly where two positions compare as `condition` says."""
    match condition:
        case Op("ge" | "gt" as name, (a, b)) | Op("le" | "lt" as name, (b, a)):
            high, low = position(a), position(b)
            if high is not None and low is not None:
                return add(high, scale(low, -1), const(-1 if name in ("gt", "lt") else 0))
    return None
