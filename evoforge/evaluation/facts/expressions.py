"""What a kernel's expressions are worth: integers and addresses as sums of loop variables."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from evoforge.evaluation.facts.affine import Number, Value
from evoforge.evaluation.facts.nodes import Node, children, find, text_of

__all__ = ["Closure", "Expressions", "TooLarge"]

_MAX_NODES = 200_000
_CASTS = re.compile(
    r"^(static_cast|reinterpret_cast|const_cast|u?int\d*_t|s?size_t|ptrdiff_t|int|long|unsigned|short)$"
)


class TooLarge(Exception):
    """The text is larger than anyone would write."""


@dataclass
class Closure:
    """A lambda: its code and the scopes it sees."""

    parameters: Node
    body: Node
    scopes: list[dict[str, Any]]


class Expressions(ABC):
    """Evaluates expressions; `_scopes` hold values and closures by name, innermost last.

    Octal numbers with the suffix LL are the kernel's parameters (nobody else writes such): they and
    what is made of them count as chosen. Whoever derives says what a call does, and is told of every address.

    Args:
        known: numbers in what `evo_run` is called with, as it is written behind ``call->``.
    """

    def __init__(self, lanes: int, known: Mapping[str, int]) -> None:
        self._known = known
        self._scopes: list[dict[str, Any]] = [{"lanes": Value.of(lanes), "evo::lanes": Value.of(lanes)}]
        self._nodes = 0
        self._fresh = 0
        self._taints: dict[str, set[str]] = {}

    @abstractmethod
    def _address(self, where: Value) -> None:
        """Memory is accessed at `where`."""

    @abstractmethod
    def _call(self, name: str, arguments: list[Any], template: list[Value]) -> Value | None:
        """The result of a call by name; None if it is not known."""

    @abstractmethod
    def _invoke(self, closure: Closure, arguments: list[Any], values: dict[str, Any]) -> Value:
        """The result of running a lambda or a function."""

    def _count(self, nodes: int = 1) -> None:
        self._nodes += nodes
        if self._nodes > _MAX_NODES:
            raise TooLarge

    # ---- names ----

    def _symbol(self, prefix: str) -> str:
        self._fresh += 1
        return f"{prefix}{self._fresh}"

    def unknown(self, prefix: str = "?", taint: set[str] | None = None) -> Value:
        name = self._symbol(prefix)
        if taint:
            self._taints[name] = taint
        return Value.symbol(name)

    def _loops_of(self, value: Value) -> set[str]:
        found = {symbol for symbol in value.symbols if symbol[0] == "L"}
        return found.union(*(self._taints.get(symbol, set()) for symbol in value.symbols))

    def _look_up(self, name: str | None) -> Any:
        return next((scope[name] for scope in reversed(self._scopes) if name in scope), None)

    def _assign(self, name: str, value: Any) -> None:
        value = self._bounded(value) if isinstance(value, Value) else value
        for scope in reversed(self._scopes):
            if name in scope:
                scope[name] = value
                return
        self._scopes[-1][name] = value

    def _bounded(self, value: Value) -> Value:
        """Itself, or an unknown where it has grown beyond what an index or address is."""
        return value if value.fits else self.unknown("@" if value.is_pointer else "?", self._loops_of(value))

    # ---- expressions ----

    def value(self, node: Node | None) -> Value:
        self._count()
        handler = getattr(self, f"_eval_{node.type}", None) if node is not None else None
        if handler is not None:
            result = handler(node)
            return self._bounded(result) if isinstance(result, Value) else self.unknown()
        taint: set[str] = set()
        for child in children(node) if node is not None else []:
            if child.type != "lambda_expression":
                taint |= self._loops_of(self.value(child))
        return self.unknown(taint=taint)

    def _eval_number_literal(self, node: Node) -> Value | None:
        text = text_of(node).replace("'", "").lower()
        digits = text.rstrip("ul")
        try:
            if re.fullmatch(r"0[0-7]+", digits):
                return Value.of(Number.of(int(digits, 8), chosen=text.endswith("ll")))
            return Value.of(int(digits, 0))
        except ValueError:
            return None

    def _eval_true(self, node: Node) -> Value:
        return Value.of(1)

    def _eval_false(self, node: Node) -> Value:
        return Value.of(0)

    def _eval_identifier(self, node: Node) -> Any:
        return self._look_up(text_of(node))

    def _eval_qualified_identifier(self, node: Node) -> Any:
        name = text_of(node)
        return self._look_up(name) or self._look_up(name.rpartition("::")[2])

    def _only(self, node: Node) -> Value:
        values = [self.value(child) for child in children(node)]
        return values[-1] if values else self.unknown()

    _eval_parenthesized_expression = _only
    _eval_condition_clause = _only
    _eval_comma_expression = _only

    def _eval_cast_expression(self, node: Node) -> Value:
        value = self.value(node.child_by_field_name("value"))
        pointer = text_of(node.child_by_field_name("type")).rstrip().endswith("*")
        return value.plus(self.unknown("@")) if pointer and not value.is_pointer else value

    def _said_by_the_call(self, node: Node) -> Value | None:
        number = self._known.get(re.sub(r"\s", "", text_of(node)).partition("->")[2])
        return None if number is None else Value.of(number)

    def _eval_field_expression(self, node: Node) -> Value:
        known = self._said_by_the_call(node)
        return known or self.unknown(taint=self._loops_of(self.value(node.child_by_field_name("argument"))))

    def _eval_unary_expression(self, node: Node) -> Value | None:
        inner = self.value(node.child_by_field_name("argument"))
        operator = text_of(node.child_by_field_name("operator"))
        if operator == "!":
            return None if inner.number is None else Value.of(int(not inner.number.value))
        return inner.times(Value.of(-1)) if operator == "-" else inner if operator == "+" else None

    def _eval_binary_expression(self, node: Node) -> Value | None:
        operator = text_of(node.child_by_field_name("operator"))
        left, right = self.value(node.child_by_field_name("left")), self.value(node.child_by_field_name("right"))
        if operator in ("+", "-"):
            return left.plus(right, 1 if operator == "+" else -1)
        product = left.times(right) if operator == "*" else None
        a, b = left.number, right.number
        if product is None and a is not None and b is not None:
            return _constant(operator, a, b)
        return product or self.unknown(taint=self._loops_of(left) | self._loops_of(right))

    def _eval_conditional_expression(self, node: Node) -> Value:
        truth = self.value(node.child_by_field_name("condition")).number
        one = self.value(node.child_by_field_name("consequence"))
        two = self.value(node.child_by_field_name("alternative"))
        if truth is not None:
            return one if truth.value else two
        return one.or_else(two)

    def _eval_assignment_expression(self, node: Node) -> Value:
        target, operator = node.child_by_field_name("left"), text_of(node.child_by_field_name("operator"))
        value = self.value(node.child_by_field_name("right"))
        if target.type != "identifier":
            self.value(target)
            return value
        old = self._look_up(text_of(target))
        if operator in ("+=", "-="):
            value = old.plus(value, 1 if operator == "+=" else -1) if isinstance(old, Value) else self.unknown()
        elif operator != "=":
            value = self.unknown(taint=self._loops_of(value))
        if isinstance(old, Value) and old.is_pointer and not value.is_pointer:
            value = value.plus(self.unknown("@"))
        self._assign(text_of(target), value)
        return value

    def _eval_update_expression(self, node: Node) -> Value:
        target = node.child_by_field_name("argument")
        old = self.value(target)
        moved = old.plus(Value.of(1 if text_of(node.child_by_field_name("operator")) == "++" else -1))
        if target.type == "identifier":
            self._assign(text_of(target), moved)
        return moved if node.children[0].type in ("++", "--") else old

    def _eval_subscript_expression(self, node: Node) -> Value:
        known = self._said_by_the_call(node)
        if known is not None:
            return known
        base = self.value(node.child_by_field_name("argument"))
        indices = node.child_by_field_name("indices")
        parts = [self.value(child) for child in children(indices)] if indices is not None else []
        index = parts[0] if len(parts) == 1 else self.unknown()
        self._address(base.plus(index))
        return self.unknown(taint=self._loops_of(base) | self._loops_of(index))

    def _eval_pointer_expression(self, node: Node) -> Value:
        argument = node.child_by_field_name("argument")
        if text_of(node.child_by_field_name("operator")) == "&" and argument.type == "subscript_expression":
            base = self.value(argument.child_by_field_name("argument"))
            indices = argument.child_by_field_name("indices")
            parts = [self.value(child) for child in children(indices)]
            where = base.plus(parts[0]) if len(parts) == 1 else self.unknown("@")
            self._address(where)
            return where if where.is_pointer else where.plus(self.unknown("@"))
        inner = self.value(argument)
        self._address(inner)
        return self.unknown(taint=self._loops_of(inner))

    def _eval_lambda_expression(self, node: Node) -> None:
        return None

    def _eval_call_expression(self, node: Node) -> Any:
        function, listed = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        given = children(listed) if listed is not None else []
        arguments = [self._argument(argument) for argument in given]
        if function.type == "lambda_expression":
            return self._invoke(self._closure(function), arguments, {})
        name, template = self._callee(function)
        closure = self._look_up(name)
        if isinstance(closure, Closure):
            return self._invoke(closure, arguments, {})
        short = name.rpartition("::")[2]
        values = [argument for argument in arguments if isinstance(argument, Value)]
        if _CASTS.match(short) and len(values) == 1:
            return values[0]
        if short in ("min", "max") and len(values) == len(given) == 2:
            return values[0].or_else(values[1])
        return self._call(name, arguments, template)

    def _argument(self, node: Node) -> Any:
        if node.type == "lambda_expression":
            return self._closure(node)
        known = self._look_up(text_of(node)) if node.type == "identifier" else None
        return known if isinstance(known, Closure) else self.value(node)

    def _closure(self, node: Node) -> Closure:
        declarator = node.child_by_field_name("declarator")
        parameters = declarator.child_by_field_name("parameters") if declarator is not None else None
        return Closure(parameters, node.child_by_field_name("body"), list(self._scopes))

    def _callee(self, function: Node) -> tuple[str, list[Value]]:
        """Its name without template arguments, and those of these that are values."""
        for inner in (function, *find(function, "template_function", "template_type")):
            listed = inner.child_by_field_name("arguments") if inner.type.startswith("template_") else None
            if listed is not None:
                values = [self.value(child) for child in children(listed) if child.type != "type_descriptor"]
                return text_of(function).replace(text_of(listed), "", 1).strip(), values
        return text_of(function), []


def _constant(operator: str, left: Number, right: Number) -> Value | None:
    """Arithmetic of known integers as C does it."""
    a, b = left.value, right.value
    if operator in ("/", "%"):
        if b == 0:
            return None
        quotient = left.over(right)
        return Value.of(quotient if operator == "/" else a - quotient.value * b)
    results = {
        "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "==": a == b, "!=": a != b,
        "&&": bool(a and b), "||": bool(a or b),
    }  # fmt: skip
    if operator in results:
        return Value.of(int(results[operator]))
    if operator in ("<<", ">>") and 0 <= b < 63:
        factor = Number(Fraction(1 << int(b)), Fraction(1))
        return Value.of(left * factor if operator == "<<" else left.over(factor))
    if operator in ("&", "|"):
        return Value.of(int(a) & int(b) if operator == "&" else int(a) | int(b))
    return None
