"""Which values of integer inputs torch has an answer for.

It refuses an index out of range and a whole number divided by 0. A kernel reads what lies there, or is killed: somebody
has to look before it runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evoforge.lowering.index import substitute
from evoforge.lowering.ir import Affine, Cast, Const, Expr, Graph, Indirect, Load, Op, Where, nodes, rewrite
from evoforge.lowering.lanes import INTS
from evoforge.lowering.stages import CHEAP, extents_of, operations

__all__ = ["Ranges", "accepted"]

Ranges = tuple[tuple[int, int], ...]
"""Their ends included."""

_END = 1 << 63
_ALL: Ranges = ((-_END, _END - 1),)
_NOT_0: Ranges = ((-_END, -1), (1, _END - 1))
_DIVISIONS = ("div", "floordiv", "mod", "fmod")


def accepted(graph: Graph) -> dict[str, Ranges]:
    """Input → where all its values must lie, of inputs whose elements are indices or divisors.

    They are one as they are, counted from the end, or but for a number that stands for none (`ignore_index`). What else
    is made of inputs is not looked into.
    """
    found: dict[str, Ranges] = {}
    for value, wanted in _wanted(graph):
        known = _of_input(value, wanted, graph)
        if known is not None:
            name, ranges = known
            met = ((max(a, c), min(b, d)) for a, b in found.get(name, _ALL) for c, d in ranges)
            found[name] = tuple((low, high) for low, high in met if low <= high)
    return found


def _wanted(graph: Graph) -> Iterator[tuple[Expr, Ranges]]:
    """Indices and divisors, and where each must lie."""
    for body in _bodies(graph):
        for node in nodes(body):
            if isinstance(node, Load):
                for index, size in zip(node.index, graph.tensors[node.tensor].shape, strict=True):
                    match index:
                        case Affine(((1, Indirect(value)),), start):
                            yield value, ((-start, size - 1 - start),)
            elif isinstance(node, Op) and node.name in _DIVISIONS and node.dtype in INTS:
                yield node.args[1], _NOT_0


def _bodies(graph: Graph) -> Iterator[Expr]:
    """What stages compute; whole numbers and truth values that took little stand where they are loaded."""
    known: dict[str, tuple[list[str], Expr]] = {}
    for stage in graph.stages:
        extents = extents_of(stage)

        def visit(node: Any, extents: Mapping[str, int] = extents) -> Any:
            if not isinstance(node, Load) or node.tensor not in known or node.guards:
                return node
            axes, made = known[node.tensor]
            return substitute(made, dict(zip(axes, node.index, strict=True)), extents)

        body = rewrite(stage.body, visit)
        yield body
        out = stage.outputs[0]
        if stage.kind == "map" and out and graph.tensors[out].dtype in (*INTS, "bool") and operations(body) <= CHEAP:
            known[out] = [a.name for a in stage.axes], body


def _of_input(value: Expr, ranges: Ranges, graph: Graph) -> tuple[str, Ranges] | None:
    """The input that `value` is an element of, and where that must lie for `value` to lie in `ranges`."""
    match value:
        case Load(name) if graph.tensors[name].kind == "in" and graph.tensors[name].dtype in INTS:
            return name, ranges
        case Cast(arg, "i32" | "i64"):
            return _of_input(arg, ranges, graph)
        case Where(Op("lt", (x, Const(0))), Op("add", (y, Const(size))), z) if x == y == z:
            last = int(size) - 1
            return _of_input(x, ((-last - 1, last),), graph) if ranges == ((0, last),) else None
        case Where(Op("ne", (x, Const(none))), y, Const(at)) if x == y and any(a <= at <= b for a, b in ranges):
            return _of_input(x, (*ranges, (int(none), int(none))), graph)
    return None
