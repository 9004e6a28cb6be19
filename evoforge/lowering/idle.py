"""Where a graph needs no work: products with a zero that its place decides, and results that nobody reads.

A triangle, a diagonal, a causal mask, the last token behind a linear layer: what positions alone make zero, or
leave unread, no implementation has to compute. Shares are counted at sampled points of a stage's domain, and taken
from below, since they go into bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from evoforge.lowering.index import evaluated, from_memory, names
from evoforge.lowering.ir import (
    Cast,
    Const,
    Graph,
    Guard,
    Indirect,
    Load,
    Op,
    Position,
    Stage,
    Where,
    loads,
    nodes,
    parts,
)  # fmt: skip
from evoforge.lowering.stages import extents_of

__all__ = ["Work", "inside", "work"]

_SAMPLES, _MORE_SAMPLES = 1 << 14, 1 << 17
_SIGMAS = 3.0
_DEPTH = 12  # of maps that are seen through
_OPENED = 128  # maps, for one question: a stencil that is unrolled asks for three times as many with every step
_ODD = (
    "neg",
    "abs",
    "sqrt",
    "sin",
    "tan",
    "sinh",
    "tanh",
    "erf",
    "expm1",
    "log1p",
    "sign",
    "floor",
    "ceil",
    "round",
    "trunc",
    "as_f16",
    "as_bf16",
)
_NUMBERS: Mapping[str, Any] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "neg": np.negative,
    "abs": np.abs, "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "and": np.logical_and, "or": np.logical_or, "not": np.logical_not,
}  # fmt: skip

Bools = npt.NDArray[np.bool_]
Places = Mapping[str, npt.NDArray[np.int64]]


@dataclass
class Work:
    """By stage, the part of its points that some output needs and that are not zero by their place (`points`); by stage
    and load, the part of its points at which it matters what is read (`loads`)."""

    points: dict[str, float] = field(default_factory=dict)
    loads: dict[tuple[str, Load], float] = field(default_factory=dict)


def work(graph: Graph) -> Work:
    """What of every stage has to be done."""
    return _Walk(graph).run()


class _Walk:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._left = 0  # maps that may be seen through
        self._telling: set[str] = set()  # stages in which something may be idle, and what they write
        for stage in graph.stages:
            if any(map(self._tells, nodes(stage.body))):
                self._telling |= {stage.name, *filter(None, stage.outputs)}
        self._makers = {name: stage for stage in graph.stages for name in stage.outputs if name and stage.kind == "map"}

    def _tells(self, node: Any) -> bool:
        if isinstance(node, Load):
            return bool(node.guards) or node.tensor in self._telling
        return isinstance(node, Where) or (isinstance(node, Op) and node.name == "eq")

    def run(self) -> Work:
        found, wanted = Work(), dict.fromkeys(self._graph.names("out"), 1.0)
        for stage in reversed(self._graph.stages):
            need = min(1.0, max((wanted.get(name, 0.0) for name in stage.outputs if name), default=0.0))
            extents = extents_of(stage)
            telling = stage.name in self._telling
            at = _sampled(extents) if telling else {}
            every, matters = np.ones(1, bool), dict[Load, Bools]()
            self._left = _OPENED
            alive = self._alive(stage.body, at, _DEPTH) if telling and stage.monoid in (None, "sum") else every
            found.points[stage.name] = need * _share(alive)
            if telling:
                self._left = _OPENED
                self._matters(stage.body, at, every, matters)
            for load in loads(stage.body):
                missing = np.zeros(1, bool) if telling else every
                share = need * self._read_share(stage, load, matters.get(load, missing))
                found.loads[stage.name, load] = share
                numel = max(self._graph.tensors[load.tensor].numel, 1)
                wanted[load.tensor] = wanted.get(load.tensor, 0.0) + share * self._touched(load, extents) / numel
        return found

    def _read_share(self, stage: Stage, load: Load, matters: Bools) -> float:
        """Of the elements that a load names, the part that some point rests on."""
        share, extents = _share(matters), extents_of(stage)
        own = {name: extents[name] for name in sorted(set().union(*(names(index) for index in load.index)))}
        others = {name: extent for name, extent in extents.items() if name not in own}
        width = math.prod(others.values())
        if share == 1.0 or not others or not 1 < width <= _SAMPLES:
            return share
        few = _sampled(own, _MORE_SAMPLES // width)
        height = max((len(column) for column in few.values()), default=1)
        along = _sampled(others)
        at = {name: np.repeat(column, width) for name, column in few.items()}
        at |= {name: np.tile(column, height) for name, column in along.items()}
        found: dict[Load, Bools] = {}
        self._left = _OPENED
        self._matters(stage.body, at, np.ones(1, bool), found)
        held = np.broadcast_to(found.get(load, np.zeros(1, bool)), height * width).reshape(height, width)
        return _share(np.asarray(held.any(axis=1)), height < math.prod(own.values()))

    def _touched(self, load: Load, extents: Mapping[str, int]) -> int:
        """Elements that a load names: at most along what it walks; all where memory decides."""
        count = 1
        for index, size in zip(load.index, self._graph.tensors[load.tensor].shape, strict=True):
            if any(isinstance(atom, Indirect) for _, atom in index.terms):
                count *= size
            else:
                count *= min(size, math.prod(extents[name] for name in names(index)))
        return count

    # ---- what is zero, or −∞, by its place ----

    def _alive(self, expr: Any, at: Places, depth: int) -> Bools:
        """Whether the value may be other than zero.

        Where one of many is picked by what memory holds (a one-hot row), a gather does as well.
        """
        if isinstance(expr, Const):
            return np.full(1, expr.value != 0)
        if isinstance(expr, Cast):
            return self._alive(expr.arg, at, depth)
        if isinstance(expr, Load):
            held = inside(expr.guards, at)
            alive = self._through(expr, at, depth, self._alive, True)
            return alive & held if expr.other == 0 else alive | ~held
        if isinstance(expr, Where):
            truth = self._number(expr.condition, at, depth)
            then, other = self._alive(expr.then, at, depth), self._alive(expr.other, at, depth)
            if truth is not None:
                return np.where(truth.astype(bool), then, other)
            return then & self._alive(expr.condition, at, depth) | other
        if isinstance(expr, Op):
            if expr.name == "mul":
                return self._alive(expr.args[0], at, depth) & self._alive(expr.args[1], at, depth)
            if expr.name == "div" or expr.name in _ODD:
                return self._alive(expr.args[0], at, depth)
            if expr.name in ("add", "sub"):
                return self._alive(expr.args[0], at, depth) | self._alive(expr.args[1], at, depth)
            if expr.name == "eq":
                value = self._number(expr, at, depth)
                return np.zeros(1, bool) if value is None else value.astype(bool)
            if expr.name in ("exp", "exp2"):
                return ~self._sunk(expr.args[0], at, depth)
        return np.ones(1, bool)

    def _sunk(self, expr: Any, at: Places, depth: int) -> Bools:
        """Whether the value is surely −∞."""
        if isinstance(expr, Const):
            return np.full(1, expr.value == -math.inf)
        if isinstance(expr, Cast):
            return self._sunk(expr.arg, at, depth)
        if isinstance(expr, Load):
            return self._through(expr, at, depth, self._sunk, False) & inside(expr.guards, at)
        if isinstance(expr, Where):
            truth = self._number(expr.condition, at, depth)
            then, other = self._sunk(expr.then, at, depth), self._sunk(expr.other, at, depth)
            return then & other if truth is None else np.where(truth.astype(bool), then, other)
        if isinstance(expr, Op) and expr.name in ("add", "sub"):
            sunk = self._sunk(expr.args[0], at, depth)
            return sunk | self._sunk(expr.args[1], at, depth) if expr.name == "add" else sunk
        return np.zeros(1, bool)

    def _through(self, load: Load, at: Places, depth: int, ask: Any, unknown: bool) -> Bools:
        """The answer of the map that made what is read."""
        places = self._places(load, at) if depth else None
        if places is None:
            return np.full(1, unknown)
        found: Bools = ask(self._makers[load.tensor].body, places, depth - 1)
        return found

    def _places(self, load: Load, at: Places) -> Places | None:
        """Where the map that made a tensor stood; None if none did, if memory says where, or if many were asked."""
        maker = self._makers.get(load.tensor)
        if maker is None or any(from_memory(index) for index in load.index) or not self._left:
            return None
        self._left -= 1
        return {axis.name: evaluated(index, at) for axis, index in zip(maker.written, load.index, strict=True)}

    def _number(self, expr: Any, at: Places, depth: int) -> npt.NDArray[Any] | None:
        """The value where positions alone decide it."""
        if isinstance(expr, Const):
            return np.full(1, expr.value)
        if isinstance(expr, Position):
            return None if from_memory(expr.index) else evaluated(expr.index, at)
        if isinstance(expr, Cast):
            value = self._number(expr.arg, at, depth)
            return value if value is None or expr.dtype != "bool" else value != 0
        if isinstance(expr, Load):
            places = self._places(expr, at) if depth and not expr.guards else None
            return None if places is None else self._number(self._makers[expr.tensor].body, places, depth - 1)
        if isinstance(expr, Where):
            values = self._numbers((expr.condition, expr.then, expr.other), at, depth)
            return None if values is None else np.where(values[0].astype(bool), values[1], values[2])
        if isinstance(expr, Op) and expr.name in _NUMBERS:
            values = self._numbers(expr.args, at, depth)
            if values is not None:
                result: npt.NDArray[Any] = _NUMBERS[expr.name](*values)
                return result
        return None

    def _numbers(self, exprs: Iterable[Any], at: Places, depth: int) -> list[npt.NDArray[Any]] | None:
        """All values; None after the first that positions do not decide."""
        values = []
        for expr in exprs:
            value = self._number(expr, at, depth)
            if value is None:
                return None
            values.append(value)
        return values

    # ---- what is read in vain ----

    def _matters(self, expr: Any, at: Places, active: Bools, found: dict[Load, Bools]) -> None:
        """Notes for every load at which points the result rests on it."""
        if isinstance(expr, Load):
            found[expr] = found[expr] | active if expr in found else active
        if isinstance(expr, Where):
            truth = self._number(expr.condition, at, _DEPTH)
            if truth is None:
                self._matters(expr.condition, at, active, found)
            taken = np.ones(1, bool) if truth is None else truth.astype(bool)
            self._matters(expr.then, at, active & taken, found)
            self._matters(expr.other, at, active if truth is None else active & ~taken, found)
            return
        if isinstance(expr, Op) and expr.name == "mul":
            for one, other in (expr.args, expr.args[::-1]):
                self._matters(one, at, active & self._alive(other, at, _DEPTH), found)
            return
        for part in expr if isinstance(expr, tuple) else parts(expr):
            self._matters(part, at, active, found)


def _sampled(extents: Mapping[str, int], most: int = _SAMPLES) -> Places:
    """Points of a domain: all where they are few."""
    total = math.prod(extents.values())
    if total <= most:
        flat = np.arange(total)
        unravelled = np.unravel_index(flat, tuple(extents.values())) if extents and total else ()
        return dict(zip(extents, unravelled, strict=False)) or {name: np.zeros(1, np.int64) for name in extents}
    rng = np.random.default_rng(0)
    return {name: rng.integers(0, max(extent, 1), most) for name, extent in extents.items()}


def _share(holds: Bools, sampled: bool | None = None) -> float:
    """From below, where it was sampled."""
    count = int(holds.sum())
    if count == holds.size:
        return 1.0
    spread = _SIGMAS * math.sqrt(count) if (holds.size >= _SAMPLES if sampled is None else sampled) else 0.0
    return max(0.0, count - spread) / holds.size


def inside(guards: Iterable[Guard], at: Places) -> Bools:
    """At which points all guards hold; those that memory decides are taken to."""
    held = np.ones(1, bool)
    for guard in guards:
        if not from_memory(guard.arg):
            value = evaluated(guard.arg, at)
            held = held & (value >= 0 if guard.kind == "ge0" else value % guard.modulus == 0)
    return held
