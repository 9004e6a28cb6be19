"""Expressions of stages of one domain, seen through the maps that they read, but only as far as somebody looks.

Written out, an expression whose maps read each other twice doubles with every one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evoforge.lowering.index import axis, substitute
from evoforge.lowering.ir import Expr, Graph, Load, Op, Stage, parts
from evoforge.lowering.stages import extents_of

__all__ = ["Through", "at"]


def at(producer: Stage, load: Load, extents: Mapping[str, int]) -> Any:
    """The expression of a map where `load` reads its result."""
    names = [a.name for a in producer.axes]
    return substitute(producer.body, dict(zip(names, load.index, strict=True)), extents)


class Through:
    """`stage`: one of the domain; its axes lend their names to the others'."""

    def __init__(self, graph: Graph, stage: Stage) -> None:
        self._maps = {out: s for s in graph.stages if s.kind == "map" for out in s.outputs if out}
        self._names = [a.name for a in (*stage.axes, *stage.reduction)]
        self._extents = extents_of(stage)
        self._same: dict[tuple[Any, Any], bool] = {}

    def body(self, stage: Stage) -> Expr:
        """The expression of a stage, whose axes have the same sizes in the same order."""
        own = [a.name for a in (*stage.axes, *stage.reduction)]
        found: Expr = substitute(stage.body, dict(zip(own, map(axis, self._names), strict=True)), self._extents)
        return found

    def open(self, expr: Expr, stop: str | None = None) -> Expr:
        """The expression of the map whose result `expr` is, if it is one and not `stop`."""
        while isinstance(expr, Load) and expr.tensor in self._maps and expr.tensor != stop and not expr.guards:
            expr = at(self._maps[expr.tensor], expr, self._extents)
        return expr

    def args(self, expr: Expr, name: str, stop: str | None) -> tuple[Expr, Expr] | None:
        """Both arguments (or twice the only one) of the operator `name`, if `expr` is one."""
        found = self.open(expr, stop)
        return (found.args[0], found.args[-1]) if isinstance(found, Op) and found.name == name else None

    def same(self, a: Any, b: Any) -> bool:
        """Whether two expressions are equal; a pair is looked at once, however often it occurs."""
        if a == b:
            return True
        if (a, b) not in self._same:
            self._same[a, b] = self._alike(*(self.open(x) if isinstance(x, Load) else x for x in (a, b)))
        return self._same[a, b]

    def _alike(self, a: Any, b: Any) -> bool:
        if type(a) is not type(b) or isinstance(a, Load):
            return bool(a == b)
        mine, theirs = (x if isinstance(x, tuple) else parts(x) for x in (a, b))
        if not mine:
            return bool(a == b)
        return len(mine) == len(theirs) and all(map(self.same, mine, theirs))
