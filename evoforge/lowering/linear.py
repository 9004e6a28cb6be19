"""Integers of printed kernels as sums of loop variables, at known sizes and parameters."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from evoforge.lowering.printed import parsed

__all__ = ["Linear", "Number", "Scope", "loops_of"]

_MOST = 4


@dataclass(frozen=True)
class Number:
    """A number, and the factor of it that parameters gave: a tile's size was chosen, a dimension was not."""

    value: float
    chosen: float = 1.0

    def __add__(self, other: Number) -> Number:
        if not self.value or not other.value:
            return other if not self.value else self
        total = self.value + other.value
        return Number(total, self.chosen if self.chosen == other.chosen else total or 1.0)

    def __mul__(self, other: Number) -> Number:
        return Number(self.value * other.value, self.chosen * other.chosen)


_ONE, _ZERO = Number(1.0), Number(0.0)


@dataclass(frozen=True)
class Linear:
    """Σ coefficient · variable + const; what is divided is `rough`: right on average, not at every step."""

    terms: Mapping[str, Number]
    const: Number
    rough: frozenset[str] = frozenset()

    def plus(self, other: Linear, factor: Number) -> Linear:
        terms = dict(self.terms)
        for name, number in other.terms.items():
            total = terms.get(name, _ZERO) + number * factor
            terms[name] = total
            if not total.value:
                del terms[name]
        return Linear(terms, self.const + other.const * factor, self.rough | other.rough)

    def times(self, factor: Number) -> Linear:
        terms = {name: number * factor for name, number in self.terms.items()} if factor.value else {}
        return Linear(terms, self.const * factor, self.rough)


Values = tuple[Linear, ...]


def loops_of(symbol: str) -> list[str]:
    """The loops that a variable depends on: itself, or those in an opaque one's name."""
    return symbol[1:].split("+") if symbol[0] in "[?" else [symbol]


def _constant(value: float, chosen: float = 1.0) -> Values:
    return (Linear({}, Number(value, chosen)),)


class Scope:
    """Names and what they are worth; a value may be one of several (``min(a, b)``), or unknown (none).

    Args:
        sizes: ("EVO_SIZE" or "EVO_STRIDE", tensor, dimension) → what it is.
        params: the kernel's parameters.
        lanes: floats in a vector.
    """

    def __init__(self, sizes: Mapping[tuple[str, str, int], int], params: Mapping[str, int], lanes: int) -> None:
        self._sizes = sizes
        self.names: dict[str, Values] = {name: _constant(value, value or 1) for name, value in params.items()} | {
            "evo_lanes": _constant(lanes),
            "evo_deep": _constant(32),
            "call_threads": _constant(1),
            "true": _constant(1),
        }

    def number(self, text: str) -> float | None:
        """The least of the known numbers that an expression may be."""
        known = [one.const.value for one in self.values(text) if not one.terms]
        return min(known, default=None)

    def values(self, text: str) -> Values:
        tree = parsed(text)
        return () if tree is None else self._value(tree)

    def _value(self, node: ast.expr) -> Values:
        if isinstance(node, ast.Constant):
            return _constant(float(node.value)) if isinstance(node.value, int | float) else ()
        if isinstance(node, ast.Name):
            return self.names.get(node.id, ())
        if isinstance(node, ast.BinOp):
            return self._binary(node.op, self._value(node.left), self._value(node.right))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return tuple(one.times(Number(-1.0)) for one in self._value(node.operand))
        if isinstance(node, ast.BoolOp):
            each = [self._value(part) for part in node.values]
            return _constant(float(all(one and one[0].const.value for one in each)))
        if isinstance(node, ast.Compare):
            left, right = self._value(node.left), self._value(node.comparators[0])
            return _constant(float(left == right))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self._call(node)
        return self._opaque(node)

    def _opaque(self, node: ast.expr) -> Values:
        """What depends on loops in a way that is no sum: a variable named by them, ``[`` before if it is loaded."""
        names = [inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)]
        found = {symbol for name in names for one in self.names.get(name, ()) for symbol in one.terms}
        loops = {loop for symbol in found for loop in loops_of(symbol)}
        loaded = any(isinstance(inner, ast.Subscript) for inner in ast.walk(node))
        mark = "[" if loaded or any(symbol[0] == "[" for symbol in found) else "?"
        return (Linear({mark + "+".join(sorted(loops)): Number(1.0)}, _ZERO),) if loops else ()

    def _call(self, node: ast.Call) -> Values:
        assert isinstance(node.func, ast.Name)
        name, args = node.func.id, node.args
        if name in ("EVO_SIZE", "EVO_STRIDE") and isinstance(args[0], ast.Name) and isinstance(args[1], ast.Constant):
            return _constant(self._sizes[name, args[0].id, int(str(args[1].value))])
        if name == "evo_min":
            found = (*self._value(args[0]), *self._value(args[1]))[:_MOST]
            plain = all(not one.terms for one in found)
            return (min(found, key=lambda one: one.const.value),) if found and plain else found
        if name == "int64_t":
            return self._value(args[0])
        if name == "evo_omp_get_thread_num":
            return _constant(0)
        return self._opaque(node)

    def _binary(self, op: ast.operator, left: Values, right: Values) -> Values:
        found: list[Linear] = []
        for a in left:
            for b in right:
                one = _combined(op, a, b)
                if one is not None and one not in found:
                    found.append(one)
        return tuple(found[:_MOST])


def _combined(op: ast.operator, a: Linear, b: Linear) -> Linear | None:
    if isinstance(op, ast.Add | ast.Sub):
        return a.plus(b, _ONE if isinstance(op, ast.Add) else Number(-1.0))
    if isinstance(op, ast.Mult):
        return b.times(a.const) if not a.terms else a.times(b.const) if not b.terms else None
    if b.terms or not b.const.value:
        return None
    if isinstance(op, ast.Div):
        if not a.terms:
            return Linear({}, Number(float(a.const.value // b.const.value), a.const.chosen / b.const.chosen))
        found = a.times(Number(1 / b.const.value, 1 / b.const.chosen))
        return Linear(found.terms, found.const, found.rough | frozenset(found.terms))
    if isinstance(op, ast.Mod):
        return Linear({}, Number(a.const.value % b.const.value), a.rough | frozenset(a.terms))
    return None
