"""What one thread moves between its private cache and what lies beyond, from loops and addresses.

A loop that fits the cache with all it touches in one trip fetches every line once; else every trip
fetches again what one trip fetches. Of two loops one after the other, the second finds in the cache
what the first touched, if both fit (footprints as in Wolf and Lam 1991, PLDI).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from evoforge.lowering.linear import loops_of
from evoforge.lowering.walked import Place, Touch, Walk

__all__ = ["Flow", "traffic"]

_LINE, _WAYS = 64, 16


@dataclass(frozen=True)
class _Box:
    """Where an access goes: `dims` (bytes between neighbours, how many) of the loops inside, `open` (loop, bytes per
    step of its variable) of those around, `width` bytes each time; `anywhere` in its place if that is not known."""

    open: tuple[tuple[str, float], ...]
    dims: tuple[tuple[float, float], ...]
    start: float
    width: float
    anywhere: bool = False

    def over(self, loop: Walk) -> _Box:
        mine = [pair for pair in self.open if loop.symbol in loops_of(pair[0])]
        if not mine:
            return self
        # An instrumented run finds 0 and 1 where it loads an index.
        trips = min(loop.count, 2.0) if all(symbol[0] == "[" for symbol, _ in mine) else loop.count
        rest = tuple(pair for pair in self.open if pair not in mine)
        return replace(self, open=rest, dims=tuple(sorted((*self.dims, (abs(self.step(loop)), trips)))))

    def step(self, loop: Walk) -> float:
        """Bytes from one trip of `loop` to the next."""
        return sum(bytes_ * loop.step.value for symbol, bytes_ in self.open if loop.symbol in loops_of(symbol))


@dataclass(frozen=True)
class Flow:
    """What a piece of a kernel does to one place, if the cache holds nothing of it before; all in bytes.

    `fetched`: lines that come in; `dirtied`: those of them that are written; `moved`: of all accesses; `written`:
    of stores; `staged`: of accesses to lines that were written, read, and are used for something else now.
    """

    place: Place
    boxes: frozenset[_Box]
    fetched: float = 0.0
    dirtied: float = 0.0
    moved: float = 0.0
    written: float = 0.0
    staged: float = 0.0
    loads: bool = False
    stores: bool = False
    streams: bool = False

    @property
    def touched(self) -> float:
        """Bytes of all lines that are touched."""
        return _footprint(self.boxes, self.place)


Flows = dict[str, Flow]


def traffic(root: Walk, cache_bytes: int, lanes: int) -> list[Flow]:
    """The flows of a whole kernel: one for each place, and one more for what is streamed there."""
    return [*_once(root, cache_bytes, lanes).values()]


# lines


def _shape(dims: Sequence[tuple[float, float]], width: float) -> tuple[float, float]:
    """Bytes of the lines of a box, and how many bytes lie side by side in one run of it."""
    runs, run, extent = 1.0, width, width
    for step, same in groupby(dims, key=lambda dim: dim[0]):
        trips = 1 + sum(trip - 1 for _, trip in same)
        if runs == 1 and step <= max(run, _LINE):
            run += step * (trips - 1)
        elif step < extent:
            runs = min(runs * trips, (extent + step * (trips - 1)) / max(run, _LINE))
        else:
            runs *= trips
        extent += step * (trips - 1)
    return runs * math.ceil(run / _LINE - 1e-9) * _LINE, run


def _footprint(boxes: frozenset[_Box], place: Place) -> float:
    """Bytes of lines; boxes of different shapes are taken to overlap."""
    if any(box.anywhere for box in boxes):
        return place.nbytes
    most = 0.0
    for dims, width in {(box.dims, box.width) for box in boxes}:
        nbytes, run = _shape(dims, width)
        starts = sorted({box.start for box in boxes if (box.dims, box.width) == (dims, width)})
        covered = run + sum(min(run, after - before) for before, after in pairwise(starts))
        most = max(most, nbytes * (covered / run if covered >= run + _LINE else 1))
    return min(most, float(max(_LINE, place.nbytes)))


# flows


def _once(around: Walk, cache: int, lanes: int) -> Flows:
    """One trip."""
    total: Flows = {}
    done: list[Flows] = []
    sizes: list[float] = []
    for item in _steps(around):
        now = _leaf(item, lanes) if isinstance(item, list) else _loop(item, cache, lanes)
        done.append(now)
        sizes.append(sum(flow.touched for flow in now.values() if not flow.streams))
        for key, flow in now.items():
            earlier = next((k for k in reversed(range(len(done) - 1)) if key in done[k]), None)
            if earlier is not None:
                apart = sum(sizes[earlier + 1 : -1]) + (sizes[earlier] + sizes[-1]) / 2
                flow = _following(done[earlier][key], flow, _lost(apart, cache))
            total[key] = _joined(total[key], flow) if key in total else flow
    return total


def _following(before: Flow, flow: Flow, lost: float) -> Flow:
    """`flow` behind `before`, of whose lines a share is `lost`."""
    if flow.streams:
        return flow
    known = before.touched + flow.touched - _footprint(before.boxes | flow.boxes, flow.place)
    fetched = max(0.0, flow.fetched - (1 - lost) * known)
    return replace(flow, fetched=fetched, dirtied=min(flow.dirtied, fetched) if before.stores else flow.dirtied)


def _lost(nbytes: float, cache: int) -> float:
    """The share of lines that are gone when so many bytes came in: how likely a set has more lines than ways.

    Lines fall into sets at random, so that their number in one is Poisson distributed.
    """
    mean = _WAYS * nbytes / cache
    if mean > 4 * _WAYS:
        return 1.0
    below, term = 0.0, math.exp(-mean)
    for count in range(_WAYS):
        below += term
        term *= mean / (count + 1)
    return 1 - below


def _joined(a: Flow, b: Flow) -> Flow:
    return replace(
        a, boxes=a.boxes | b.boxes, fetched=a.fetched + b.fetched, dirtied=a.dirtied + b.dirtied,
        moved=a.moved + b.moved, written=a.written + b.written, staged=a.staged + b.staged,
        loads=a.loads or b.loads, stores=a.stores or b.stores,
    )  # fmt: skip


def _steps(around: Walk) -> list[list[Touch] | Walk]:
    """Loops, and the accesses between two of them as one."""
    found: list[list[Touch] | Walk] = []
    for item in around.body:
        if isinstance(item, Walk):
            found.append(item)
        elif item.access.kind != "prefetch":
            if found and isinstance(found[-1], list):
                found[-1].append(item)
            else:
                found.append([item])
    return found


def _leaf(touches: Sequence[Touch], lanes: int) -> Flows:
    found: Flows = {}
    for touch in touches:
        place = touch.place
        key = f"{place.name} streamed" if touch.streams else place.name
        width = float(place.itemsize * (lanes * touch.access.vectors if touch.access.wide else 1))
        box = _Box((), (), 0.0, width, anywhere=True)
        if touch.where:
            where = touch.where[0]
            steps = tuple(sorted((name, number.value * place.itemsize) for name, number in where.terms.items()))
            box = _Box(steps, (), where.const.value * place.itemsize, width)
        known = found.get(key, Flow(place, frozenset(), streams=touch.streams))
        loads = touch.access.kind == "load"
        found[key] = replace(
            known, boxes=known.boxes | {box}, moved=known.moved + width,
            written=known.written + (0.0 if loads else width),
            loads=known.loads or loads, stores=known.stores or not loads,
        )  # fmt: skip
    for key, flow in found.items():
        lines = _LINE if any(box.anywhere for box in flow.boxes) else flow.touched
        found[key] = replace(flow, fetched=lines, dirtied=lines if flow.stores else 0.0)
    return found


def _loop(loop: Walk, cache: int, lanes: int) -> Flows:
    """All trips."""
    inside = _once(loop, cache, lanes)
    lost = _lost(sum(flow.touched for flow in inside.values() if not flow.streams), cache)
    found: Flows = {}
    for key, flow in inside.items():
        boxes = frozenset(box.over(loop) for box in flow.boxes)
        whole = _footprint(boxes, flow.place)
        every = loop.count * flow.fetched
        lines = min(whole, every) if flow.streams else every - (1 - lost) * max(0.0, every - whole)
        share = flow.dirtied / flow.fetched if flow.fetched else 0.0
        moved, staged = loop.count * flow.moved, loop.count * flow.staged
        if flow.place.scratch and flow.loads and flow.stores:
            used = max(abs(box.step(loop)) for box in flow.boxes)
            again = min(loop.count, _LINE / used) if used else loop.count
            staged = max(staged, (moved - lines) * (1 - 1 / again) if again > 1 else 0.0)
        found[key] = replace(
            flow, boxes=boxes, fetched=lines, dirtied=lines * share, moved=moved,
            written=loop.count * flow.written, staged=staged,
        )  # fmt: skip
    return found
