"""How many levels of tiles printed loops make, counted as the facts count them in the text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from evoforge.lowering.linear import Linear, Number
from evoforge.lowering.walked import Touch, Walk

__all__ = ["Levels", "is_unrolled", "levels", "vectors_per_trip"]

_MOST_BLOCK = 16
_MOST_STRAIGHT = 8


@dataclass
class Levels:
    """Most tiled loops on one path, those of a register block apart (`tiles`) or with one more for it
    (`levels`); whether there is a block; how deep the loops of the compiled kernel are."""

    tiles: int = 0
    levels: int = 0
    block: bool = False
    depth: int = 0


def levels(root: Walk, strides: frozenset[int], lanes: int) -> Levels:
    """The levels of a whole kernel.

    Args:
        strides: distances between neighbours along the tensors' dimensions, in elements.
    """
    within: dict[Walk, set[Walk]] = {}
    vectors: set[Walk] = set()
    _relate(root, [], strides, within, vectors)
    found = Levels()

    def is_lanes(loop: Walk) -> bool:
        return not loop.inner and loop not in vectors and loop.exact and 1 < loop.trips <= lanes

    def is_block(loop: Walk) -> bool:
        small = loop.exact and 1 < loop.trips <= _MOST_BLOCK
        return small and bool(within.get(loop)) and loop in vectors and all(belongs(one, loop) for one in loop.inner)

    def belongs(inner: Walk, block: Walk) -> bool:
        if is_lanes(inner) or is_block(inner):
            return block not in within.get(inner, ())
        return not inner.inner and not within.get(inner) and inner.exact and inner.trips <= _MOST_BLOCK

    def visit(loop: Walk, tiles: int) -> None:
        block = is_block(loop)
        tiles += bool(within.get(loop)) and not block and not is_lanes(loop)
        found.tiles = max(found.tiles, tiles)
        found.levels = max(found.levels, tiles + block)
        found.block = found.block or block
        if not block:
            for inner in loop.inner:
                visit(inner, tiles)

    for loop in root.inner:
        visit(loop, 0)
    found.depth = max((_depth(loop) for loop in root.inner), default=0)
    return found


def _depth(loop: Walk) -> int:
    """Loops that are left when the compiler has unrolled the small ones."""
    return 0 if is_unrolled(loop) else 1 + max((_depth(one) for one in loop.inner), default=0)


def is_unrolled(loop: Walk) -> bool:
    """Whether the compiler makes straight code of a loop and of all that is in it."""
    if loop.loop.unrolled:
        return all(is_unrolled(one) for one in loop.inner)
    return loop.known and 0 < _straight(loop) <= _MOST_STRAIGHT


def _straight(loop: Walk) -> int:
    """Trips of a loop times those inside; 0 if that is not known even once the loop is straight code."""
    product = 0 if loop.guessed or loop.trip is None else loop.trips
    for inner in loop.inner:
        product *= 1 if inner.loop.unrolled else _straight(inner)
    return product


def vectors_per_trip(loop: Walk, lanes: int) -> int:
    """How many vectors one trip of a loop takes of what it walks through, where the loops inside are unrolled.

    Not where OpenMP made one loop of several, whose addresses are computed anew in every trip.
    """
    inside = [one for one in loop.inner if not is_unrolled(one)]
    if inside:
        return max(vectors_per_trip(one, lanes) for one in inside)
    if accumulators(loop) >= 4 and any(touch.access.wide for touch, _ in _straight_touches(loop, 1)):
        return 4
    walked: dict[float, float] = {}
    for touch, times in _straight_touches(loop, 1):
        nbytes = float(touch.place.itemsize * lanes)
        number = touch.where[0].terms.get(loop.symbol) if touch.where and touch.access.wide else None
        if number is not None and not touch.gathers:
            step = abs(number.value * loop.step.value * touch.place.itemsize)
            walked[step] = walked.get(step, 0.0) + nbytes * times
    counts = [int(step // (4 * lanes)) for step, total in walked.items() if total >= step]
    return max(1, min(counts, default=1)) if not loop.collapsed else 1


def accumulators(loop: Walk) -> float:
    """How many are carried from trip to trip, where the loops inside are unrolled; vectors beyond the end are not."""
    found = float(loop.pushes + loop.masked)
    for inner in loop.inner:
        if inner.loop.unrolled:
            found += inner.trips * inner.pushes + inner.count * inner.masked
        else:
            found += accumulators(inner)
    return found


def _straight_touches(loop: Walk, times: int) -> Iterator[tuple[Touch, int]]:
    for item in loop.body:
        if isinstance(item, Walk):
            yield from _straight_touches(item, times * item.trips)
        elif item.access.kind != "prefetch":
            yield item, times


def _relate(
    loop: Walk, around: list[Walk], strides: frozenset[int], within: dict[Walk, set[Walk]], vectors: set[Walk]
) -> None:
    if loop.vector:
        vectors.update(around)
    for item in loop.body:
        if isinstance(item, Walk):
            _relate(item, [*around, item], strides, within, vectors)
            continue
        for where in item.where:
            for at, inner in enumerate(around):
                if not inner.loop.called and _coefficient(where, inner) is not None:
                    mine = {outer for outer in around[:at] if _walks_within(where, outer, inner, strides)}
                    within.setdefault(inner, set()).update(mine)


def _coefficient(where: Linear, loop: Walk) -> Number | None:
    return None if loop.symbol in where.rough else where.terms.get(loop.symbol)


def _walks_within(where: Linear, outer: Walk, inner: Walk, strides: frozenset[int]) -> bool:
    of_outer, of_inner = _coefficient(where, outer), _coefficient(where, inner)
    unit = abs(outer.step.value) == 1
    if of_outer is None or of_inner is None:
        return outer.symbol in where.rough and outer.symbol in inner.offset_by and not unit
    if inner.trip is None:
        return not unit and outer.symbol in inner.offset_by
    stride = abs(of_outer.value * outer.step.value)
    chosen = abs(of_outer.chosen * outer.step.chosen - of_inner.chosen) > 1e-9
    if not chosen and (unit or stride in strides):
        return False
    return stride > 1 and 0.5 < abs(of_inner.value) * inner.trip * abs(inner.step.value) / stride <= 1
