"""A kernel's declared parameters, read from its header comments.

::

    // evoforge: param TILE_M = 32 in {16, 32, 64, 128}
    // evoforge: require TILE_M * UNROLL <= 256

Parameters are integers, their names in capitals. A ``require`` line is an expression of integers, parameter names,
``+ - * // % ( )``, comparisons, ``and``, ``or`` and ``not``; it is evaluated by walking its syntax
tree, never by ``eval``, since kernels are untrusted text. C's ``&&``, ``||``, ``!`` and ``/`` are read as these, and
a comma or semicolon too many, or a comment after the braces, as not there.
"""

from __future__ import annotations

import ast
import functools
import heapq
import itertools
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from evoforge.errors import ParameterError

__all__ = ["Parameter", "ParameterSpace", "Params", "Point", "point"]

Params = Mapping[str, int]
Point = tuple[str, tuple[tuple[str, int], ...]]


def point(candidate: str, params: Params) -> Point:
    """What is measured: a candidate at parameter values."""
    return candidate, tuple(sorted(params.items()))


# No two neighbours of these patterns match the same text: a hostile line is read as fast as any.
_LINE = re.compile(r"^\s*(?://|#)\s*evoforge:(.*)$")
_PARAM = re.compile(r"^param\s+([A-Z][A-Z0-9_]{0,63})\s*=\s*(-?\d+)\s+in\s+\{([^{}]*)\}\s*(?:;\s*)?(?:(?://|#).*)?$")
_C_WORDS = ((re.compile(r"&&"), " and "), (re.compile(r"\|\|"), " or "), (re.compile(r"!(?!=)"), " not "))
_C_DIVISION = re.compile(r"(?<!/)/(?!/)")
_BINARY: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_NODES = (
    ast.Expression, ast.Constant, ast.Name, ast.Load, ast.UnaryOp, ast.USub, ast.Not, ast.BinOp, *_BINARY,
    ast.BoolOp, ast.And, ast.Or, ast.Compare, *_COMPARE,
)  # fmt: skip
_MAX_CHOICES = 256
_MAX_PARAMETERS = 32
_MAX_REQUIRES = 64
_DRAWS = 64  # that may break what the parameters require
_MAX_EXPRESSION = 500  # characters
_MAX_REQUIRED = 1000  # of all lines: thousands of combinations are held against them at a time
_MAX_DEPTH = 100  # of an expression's tree: it is walked wherever a search stands, deep in calls of its own
_MAX_VALUE = 2**63 - 1  # of a choice's size: what numpy draws from, and a compiler takes


@dataclass(frozen=True)
class Parameter:
    """One integer that the tuner may choose; `choices` keeps the order of the header."""

    name: str
    default: int
    choices: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.default not in self.choices:
            raise ParameterError(
                f"the default of parameter {self.name} must be one of its choices "
                f"{sorted(self.choices)}, got {self.default}; add it to the braces"
            )
        if len(set(self.choices)) != len(self.choices):
            raise ParameterError(f"the choices of parameter {self.name} repeat a value")
        if any(abs(choice) > _MAX_VALUE for choice in self.choices):
            raise ParameterError(f"the choices of parameter {self.name} must fit 64 bits")


def _evaluate(node: ast.AST, values: Params) -> int:
    match node:
        case ast.Expression():
            return _evaluate(node.body, values)
        case ast.Constant(value=int(value)):
            return value
        case ast.Name():
            return values[node.id]
        case ast.UnaryOp():
            value = _evaluate(node.operand, values)
            return int(not value) if isinstance(node.op, ast.Not) else -value
        case ast.BinOp():
            left, right = _evaluate(node.left, values), _evaluate(node.right, values)
            if right == 0 and isinstance(node.op, ast.FloorDiv | ast.Mod):
                return 0
            return _BINARY[type(node.op)](left, right)
        case ast.BoolOp():
            parts = (bool(_evaluate(part, values)) for part in node.values)
            return int(all(parts) if isinstance(node.op, ast.And) else any(parts))
        case ast.Compare():
            terms = [_evaluate(part, values) for part in (node.left, *node.comparators)]
            pairs = itertools.pairwise(terms)
            return int(all(_COMPARE[type(op)](a, b) for op, (a, b) in zip(node.ops, pairs, strict=True)))
    raise AssertionError(f"{node} passed `_parsed`")


def _as_python(expression: str) -> str:
    for operator_, word in _C_WORDS:
        expression = operator_.sub(word, expression)
    return _C_DIVISION.sub("//", expression).strip()


@dataclass(frozen=True)
class ParameterSpace:
    """The declared parameters of one kernel and the conditions that a choice must meet."""

    parameters: tuple[Parameter, ...] = ()
    constraints: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        declared = {parameter.name for parameter in self.parameters}
        for text in self.constraints:
            if unknown := sorted(_parsed(text)[1] - declared):
                raise ParameterError(
                    f"'require {text}' names {unknown[0]}, which is not declared; "
                    f"add a line: evoforge: param {unknown[0]} = 4 in {{1, 2, 4}}"
                )

    @classmethod
    def parse(cls, source: str) -> ParameterSpace:
        """Reads the header lines of a kernel.

        Raises:
            ParameterError: a line that starts with ``evoforge:`` and is neither a param nor a
                require, names a parameter twice or requires something of none, or whose defaults break its own
                constraints.
        """
        parameters: list[Parameter] = []
        constraints: list[str] = []
        for number, line in enumerate(source.splitlines(), 1):
            found = _LINE.match(line)
            if not found:
                continue
            text = found.group(1).strip()
            param = _PARAM.match(text)
            if param:
                try:
                    choices = tuple(int(word) for word in param.group(3).rstrip().removesuffix(",").split(","))
                    default = int(param.group(2))
                except ValueError:
                    raise ParameterError(
                        f"line {number}: expected an integer and integers in braces, got {text[:200]!r}"
                    ) from None
                if len(choices) > _MAX_CHOICES:
                    raise ParameterError(f"line {number}: at most {_MAX_CHOICES} choices, got {len(choices)}")
                parameters.append(Parameter(param.group(1), default, choices))
            elif text.startswith("require "):
                if len(constraints) == _MAX_REQUIRES:
                    raise ParameterError(f"line {number}: expected at most {_MAX_REQUIRES} require lines, got more")
                constraints.append(_as_python(text.removeprefix("require ").strip().rstrip("; ")))
            elif text.startswith(("param", "require")):
                raise ParameterError(
                    f"line {number}: expected 'evoforge: param NAME = 4 in {{1, 2, 4}}' or "
                    f"'evoforge: require EXPRESSION', got {text[:200]!r}"
                )
        if (length := sum(map(len, constraints))) > _MAX_REQUIRED:
            raise ParameterError(f"expected at most {_MAX_REQUIRED} characters in all require lines, got {length}")
        names = [parameter.name for parameter in parameters]
        if len(set(names)) != len(names) or len(names) > _MAX_PARAMETERS:
            raise ParameterError(f"expected at most {_MAX_PARAMETERS} differently named parameters, got {names}")
        space = cls(tuple(parameters), tuple(constraints))
        if not space.feasible(space.defaults()):
            raise ParameterError("the defaults break the kernel's own require lines; change the defaults")
        return space

    def defaults(self) -> dict[str, int]:
        """The values at which the source runs as it stands."""
        return {parameter.name: parameter.default for parameter in self.parameters}

    def feasible(self, values: Params) -> bool:
        """Whether `values` names every parameter, from its choices, and meets every constraint."""
        if values.keys() != {parameter.name for parameter in self.parameters}:
            return False
        if any(values[parameter.name] not in parameter.choices for parameter in self.parameters):
            return False
        return all(_holds(text, values) for text in self.constraints)

    def broken(self, values: Params) -> int:
        """How many constraints `values`, of every parameter one of its choices, do not meet."""
        return sum(not _holds(text, values) for text in self.constraints)

    def inherit(self, values: Params) -> dict[str, int]:
        """The defaults, overlaid by what of `values` fits; the bare defaults if that is infeasible."""
        mixed = self.defaults()
        for parameter in self.parameters:
            if values.get(parameter.name) in parameter.choices:
                mixed[parameter.name] = values[parameter.name]
        return mixed if self.feasible(mixed) else self.defaults()

    def draw(self, rng: np.random.Generator) -> dict[str, int]:
        """Feasible values, each drawn evenly; the defaults where hardly any are feasible."""
        for _ in range(_DRAWS):
            values = {one.name: int(rng.choice(one.choices)) for one in self.parameters}
            if self.feasible(values):
                return values
        return self.defaults()

    def nearest(self) -> dict[str, int] | None:
        """The feasible values fewest choices away from the defaults, or None; of ties the first in header order.

        Searches outwards from the defaults: time grows with the distance, and only a space without feasible
        values is searched whole.
        """
        names = [parameter.name for parameter in self.parameters]
        choices = [parameter.choices for parameter in self.parameters]
        start = tuple(parameter.choices.index(parameter.default) for parameter in self.parameters)
        waiting, seen = [(0, start)], {start}
        while waiting:
            distance, at = heapq.heappop(waiting)
            values = {name: options[i] for name, options, i in zip(names, choices, at, strict=True)}
            if all(_holds(text, values) for text in self.constraints):
                return values
            for axis, i in enumerate(at):
                for step in (-1, 1):
                    away = i == start[axis] or (step > 0) == (i > start[axis])
                    moved = (*at[:axis], i + step, *at[axis + 1 :])
                    if away and 0 <= i + step < len(choices[axis]) and moved not in seen:
                        seen.add(moved)
                        heapq.heappush(waiting, (distance + 1, moved))
        return None

    def product_size(self) -> int:
        """How many combinations there are before the constraints."""
        size = 1
        for parameter in self.parameters:
            size *= len(parameter.choices)
        return size

    def points(self) -> Iterator[dict[str, int]]:
        """Every feasible combination, in the order of the header."""
        names = [parameter.name for parameter in self.parameters]
        for combination in itertools.product(*(parameter.choices for parameter in self.parameters)):
            values = dict(zip(names, combination, strict=True))
            if self.feasible(values):
                yield values


def _holds(text: str, values: Params) -> bool:
    return bool(_evaluate(_parsed(text)[0], values))


@functools.lru_cache(maxsize=1024)
def _parsed(text: str) -> tuple[ast.Expression, frozenset[str]]:
    """The tree, all of which `_evaluate` knows, whatever of it the values call for; and the names in it."""
    if len(text) > _MAX_EXPRESSION:
        raise ParameterError(f"expected at most {_MAX_EXPRESSION} characters after 'require', got {len(text)}")
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ParameterError(f"expected an expression after 'require', got {text!r}") from None
    names: set[str] = set()
    level: list[ast.AST] = [tree]
    for _ in range(_MAX_DEPTH):
        for node in level:
            if not isinstance(node, _NODES) or (isinstance(node, ast.Constant) and type(node.value) is not int):
                raise ParameterError(
                    f"expected integers, parameters and + - * // % comparisons, got {type(node).__name__} in {text!r}"
                )
            if isinstance(node, ast.Name):
                names.add(node.id)
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    if level:
        raise ParameterError(f"expected less nesting after 'require', got {text!r}")
    return tree, frozenset(names)
