"""Printed loops at known sizes and parameters: how often they trip, and how they walk through memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from evoforge.lowering.lanes import NEAR
from evoforge.lowering.linear import Linear, Number, Scope, loops_of
from evoforge.lowering.printed import Access, Let, Loop, arguments, read_body

__all__ = ["Place", "Touch", "Walk", "walk"]

_MOST = 4


@dataclass(frozen=True)
class Place:
    """A tensor or a piece of the workspace: bytes of an element, bytes in all."""

    name: str
    itemsize: int
    nbytes: int
    scratch: bool


@dataclass(frozen=True)
class Touch:
    """An access, and where it goes: several ways to say where, or none if that is not known. `gathers`: its elements
    are too far apart for vectors of what lies between them."""

    access: Access
    place: Place
    where: tuple[Linear, ...]
    streams: bool
    gathers: bool

    def depends_on(self, loop: Walk) -> bool:
        return any(loop.symbol in loops_of(symbol) for one in self.where for symbol in (*one.terms, *one.rough))


@dataclass(eq=False)
class Walk:
    """A loop that trips more than once; `trip` is None if unknown, `exact` when it is no upper bound.

    `offset_by`: loops that its start or its end depends on; `vector`: its own statements call for vectors;
    `known`: the compiler knows the trips; `guessed`: the facts cannot know them; `count`: trips, the last one as the
    part of it that is inside; `collapsed`: with others into one loop by OpenMP; `pushes` on accumulators in
    a trip, and `masked` ones.
    """

    symbol: str
    loop: Loop
    step: Number
    trip: int | None
    exact: bool
    offset_by: frozenset[str] = frozenset()
    vector: bool = False
    known: bool = True
    guessed: bool = False
    count: float = 1.0
    collapsed: bool = False
    pushes: int = 0
    masked: int = 0
    body: list[Walk | Touch] = field(default_factory=list)

    @property
    def inner(self) -> list[Walk]:
        return [item for item in self.body if isinstance(item, Walk)]

    @property
    def touches(self) -> list[Touch]:
        return [item for item in self.body if isinstance(item, Touch)]

    @property
    def stores(self) -> bool:
        """Whether anything in it does."""
        return any(t.access.kind in ("store", "stream") for t in self.touches) or any(w.stores for w in self.inner)

    @property
    def trips(self) -> int:
        return self.trip or 1


def walk(lines: Sequence[str], scope: Scope, places: Mapping[str, Place], lets: Sequence[str]) -> Walk:
    """The whole function as a loop of one trip.

    Args:
        places: by the pointer's name.
        lets: ``name = expression``, in order, that hold everywhere.
    """
    for text in lets:
        name, _, value = text.partition(" = ")
        scope.names[name] = scope.values(value)
    return _Walker(scope, dict(places)).run(_read("\n".join(lines)))


@lru_cache(64)
def _read(text: str) -> Loop:
    """One kernel is walked at several sizes and parameters in a row; reading it leaves nothing to change."""
    return read_body(text.split("\n"))


class _Walker:
    def __init__(self, scope: Scope, places: dict[str, Place]) -> None:
        self.scope, self.places = scope, places
        self.shifts: dict[str, tuple[Linear, ...]] = {}
        self.number = 0
        self.around: list[Walk] = []
        self.to_collapse = 0
        self.collapsing: list[Walk] = []

    def run(self, root: Loop) -> Walk:
        top = Walk("", root, Number(1), 1, True)
        self.inside(top, root)
        return top

    def inside(self, into: Walk, loop: Loop) -> None:
        into.vector |= loop.vector
        into.pushes += loop.pushes
        into.masked += loop.masked
        for item in loop.body:
            if isinstance(item, Let):
                self.let(item)
            elif isinstance(item, Access):
                if item.pointer in self.places:
                    into.body.append(self.touch(item))
            else:
                self.loop(into, item)

    def let(self, item: Let) -> None:
        if item.value.startswith("evo::part("):
            self.limit(item.value)
        if not item.pointer:
            self.scope.names[item.name] = self.scope.values(item.value)
            return
        base, _, index = item.value.partition(" + ")
        if base in self.places:
            self.places[item.name] = self.places[base]
            self.shifts[item.name] = self.shifted(base, self.scope.values(index) if index else (Linear({}, Number(0)),))

    def collapse(self, made: Walk | None) -> None:
        """Notes which loops of those that OpenMP collapses are left."""
        if self.to_collapse:
            self.to_collapse -= 1
            self.collapsing += [made] if made else []
            for member in self.collapsing:
                member.collapsed = len(self.collapsing) > 1

    def limit(self, part: str) -> None:
        """Of an unrolled loop, vectors that lie beyond the end are left out by the compiler."""
        left = self.scope.values(arguments(part)[0])
        loop = self.around[-1] if self.around else None
        if loop is not None and len(left) == 1 and list(left[0].terms) == [loop.symbol]:
            loop.count = max(1.0, min(loop.count, -left[0].const.value / left[0].terms[loop.symbol].value))

    def shifted(self, pointer: str, where: tuple[Linear, ...]) -> tuple[Linear, ...]:
        if pointer not in self.shifts:
            return where
        found = (a.plus(b, Number(1)) for a in self.shifts[pointer] for b in where)
        return tuple(found)[:_MOST]

    def touch(self, access: Access) -> Touch:
        where = self.shifted(access.pointer, self.scope.values(access.index))
        streams = access.kind == "stream" and bool(self.scope.number(access.condition))
        apart = self.scope.number(access.apart) or 0 if access.apart else 1
        gathers = apart not in (-1, *range(1, NEAR + 1))
        return Touch(access, self.places[access.pointer], where, streams, gathers)

    def loop(self, into: Walk, loop: Loop) -> None:
        starts, ends = self.scope.values(loop.start), self.scope.values(loop.end)
        steps = self.scope.values(loop.step)
        step = steps[0].const if steps else Number(1)
        spans = [end.plus(start, Number(-1)) for end in ends for start in starts]
        if loop.collapsed > 1:
            self.collapsing, self.to_collapse = [], loop.collapsed
        known = [max(0, math.ceil(span.const.value / step.value - 1e-9)) for span in spans if not span.terms]
        trip = min(known, default=None)
        guessed = any(span.rough for span in spans)
        if trip == 0 and not guessed:
            return
        if trip == 1 and not guessed:
            self.collapse(None)
            self.scope.names[loop.var] = starts
            self.inside(into, loop)
            return
        self.number += 1
        symbol = f"{loop.var}.{self.number}"
        offset = frozenset(name for one in (*starts, *ends) for name in (*one.terms, *one.rough))
        exact = not guessed and len({(*span.terms, span.const) for span in spans}) == 1
        made = Walk(symbol, loop, step, trip and max(trip, 1), exact, offset)
        made.count = max(1.0, min((s.const.value for s in spans if not s.terms), default=1.0) / step.value)
        self.collapse(made)
        made.guessed, made.known = guessed, not any(span.terms for span in spans) and not guessed
        into.body.append(made)
        moved = Linear({symbol: Number(1)}, Number(0))
        self.scope.names[loop.var] = tuple(start.plus(moved, Number(1)) for start in starts) or (moved,)
        self.around.append(made)
        self.inside(made, loop)
        self.around.pop()
