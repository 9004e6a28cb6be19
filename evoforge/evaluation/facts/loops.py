"""Follows a kernel's control flow just far enough to know its loops (see syntax.py)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from evoforge.evaluation.facts.affine import Affine, Value

__all__ = ["Loop", "Nest", "run_nest"]

_MAX_CALLS = 12
_MAX_NODES = 200_000
_CASTS = re.compile(
    r"^(static_cast|reinterpret_cast|const_cast|u?int\d*_t|s?size_t|ptrdiff_t|int|long|unsigned|short)$"
)
_VECTOR_NAMES = re.compile(r"^(_mm\d*_|evo::|__builtin_ia32)")
_VECTOR_TYPES = re.compile(r"^(evo::)?i?vec$|^__m(128|256|512)[id]?$")
_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "!=": "=="}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "!=": "!="}

Node = Any


@dataclass(eq=False)
class Loop:
    """One loop as it is reached. `step` in units of its variable; `trip` is an upper bound, `exact`
    when it is the number itself; `span` = trip · step; `offset_by`: loops in its start or bound;
    `within`: loops around it within one step of which it walks, in some address."""

    symbol: str
    step: Fraction | None
    trip: int | None
    exact: bool
    offset_by: set[str]
    within: set[str] = field(default_factory=set)
    vector: bool = False
    inner: list[Loop] = field(default_factory=list)

    @property
    def tiled(self) -> bool:
        return bool(self.within)

    @property
    def span(self) -> Fraction | None:
        return None if self.trip is None or self.step is None else self.trip * abs(self.step)


@dataclass
class Nest:
    """The outermost loops of `evo_run`; `lanes` is the number of floats in a vector."""

    loops: list[Loop]
    lanes: int


@dataclass
class _Closure:
    parameters: Node
    body: Node
    scopes: list[dict[str, Any]]


def run_nest(text: str, *, lanes: int, strides: frozenset[int]) -> Nest | None:
    """The loops that `evo_run` runs; None if it is not defined, or too large to follow.

    Args:
        strides: distances between neighbours along the tensors' dimensions, in elements: a unit
            loop multiplied by one of these walks a dimension and is no loop over tiles.
    """
    import tree_sitter_cpp
    from tree_sitter import Language, Parser

    tree = Parser(Language(tree_sitter_cpp.language())).parse(text.encode())
    walk = _Walk(lanes, strides)
    walk.declare(tree.root_node)
    entry = walk.functions.get("evo_run")
    if entry is None:
        return None
    try:
        walk.enter(entry, [])
    except (_TooLarge, RecursionError):
        return None
    return Nest(walk.top, lanes)


class _TooLarge(Exception):
    """The text is larger than anyone would write."""


def _text(node: Node) -> str:
    return str(node.text.decode(errors="replace"))


def _children(node: Node) -> list[Node]:
    return [child for child in node.named_children if child.type != "comment"]


def _find(node: Node, *types: str) -> Iterator[Node]:
    """Every descendant of one of `types`, bodies of lambdas left out."""
    for child in node.named_children:
        if child.type in types:
            yield child
        if child.type != "lambda_expression":
            yield from _find(child, *types)


def _name(declarator: Node | None) -> str:
    """The name that a declarator declares."""
    while declarator is not None and declarator.type not in ("identifier", "field_identifier", "qualified_identifier"):
        following = declarator.child_by_field_name("declarator")
        if following is None:
            following = next((c for c in _children(declarator) if c.type.endswith(("declarator", "identifier"))), None)
        declarator = following
    return _text(declarator) if declarator is not None else ""


def _is_pointer(declarator: Node | None) -> bool:
    while declarator is not None:
        if declarator.type in ("pointer_declarator", "array_declarator"):
            return True
        declarator = declarator.child_by_field_name("declarator")
    return False


class _Walk:
    """Abstract execution; `scopes` hold values and closures by name, innermost last."""

    def __init__(self, lanes: int, strides: frozenset[int]) -> None:
        self.functions: dict[str, Node] = {}
        self.top: list[Loop] = []
        self._strides = strides
        self._around: list[Loop] = []
        self._scopes: list[dict[str, Any]] = [{"lanes": Value.of(lanes), "evo::lanes": Value.of(lanes)}]
        self._calls = 0
        self._nodes = 0
        self._fresh = 0
        self._returned: Value | None = None
        self._taints: dict[str, set[str]] = {}

    # ---- declarations ----

    def declare(self, node: Node) -> None:
        """Functions and constants of the file, those in namespaces and linkage blocks too."""
        for child in _children(node):
            if child.type == "function_definition":
                self.functions[_name(child.child_by_field_name("declarator")).rpartition("::")[2]] = child
            elif child.type == "declaration":
                self.statement(child)
            elif child.type == "enum_specifier":
                self._enumerate(child)
            elif child.type in (
                "linkage_specification",
                "namespace_definition",
                "declaration_list",
                "template_declaration",
            ):
                self.declare(child)

    def _enumerate(self, node: Node) -> None:
        following = Value.of(0)
        for item in _find(node, "enumerator"):
            given = item.child_by_field_name("value")
            value = self.value(given) if given is not None else following
            self._scopes[-1][_text(item.child_by_field_name("name"))] = value
            following = value.plus(Value.of(1))

    def enter(self, function: Node, arguments: list[Any], template: list[Value] | None = None) -> Value:
        declarator = function.child_by_field_name("declarator")
        while declarator is not None and declarator.type != "function_declarator":
            declarator = declarator.child_by_field_name("declarator")
        parameters = declarator.child_by_field_name("parameters") if declarator is not None else None
        closure = _Closure(parameters, function.child_by_field_name("body"), self._scopes[:1])
        values: dict[str, Any] = {}
        if template and function.parent is not None and function.parent.type == "template_declaration":
            names = [
                _name(p) for p in _find(function.parent, "parameter_declaration", "optional_parameter_declaration")
            ]
            values = dict(zip(names, template, strict=False))
        return self._invoke(closure, arguments, values)

    def _invoke(self, closure: _Closure, arguments: list[Any], values: dict[str, Any]) -> Value:
        if self._calls >= _MAX_CALLS or closure.body is None:
            return self.unknown()
        frame: dict[str, Any] = dict(values)
        declared = [
            c for c in (_children(closure.parameters) if closure.parameters is not None else [])
            if c.type in ("parameter_declaration", "optional_parameter_declaration")
        ]  # fmt: skip
        for at, parameter in enumerate(declared):
            declarator = parameter.child_by_field_name("declarator")
            given = arguments[at] if at < len(arguments) else self.unknown()
            frame[_name(declarator)] = self._as_declared(given, declarator)
        saved, self._scopes = self._scopes, [*closure.scopes, frame]
        returned, self._returned = self._returned, None
        self._calls += 1
        self.statement(closure.body)
        self._calls -= 1
        result, self._returned = self._returned, returned
        self._scopes = saved
        return result if result is not None else self.unknown()

    def _as_declared(self, value: Any, declarator: Node | None) -> Any:
        """A pointer whose origin is unknown gets a symbol of its own."""
        if isinstance(value, Value) and _is_pointer(declarator) and not any(s[0] == "@" for s in value.symbols):
            return value.plus(self.unknown("@"))
        return value

    # ---- statements ----

    def statement(self, node: Node) -> None:
        self._nodes += 1
        if self._nodes > _MAX_NODES:
            raise _TooLarge
        handler = getattr(self, f"_on_{node.type}", None)
        if handler is not None:
            handler(node)
        elif node.type.endswith("expression") or node.type == "comma_expression":
            self.value(node)
        elif not node.type.startswith("preproc") and node.type not in ("function_definition", "template_declaration"):
            for child in _children(node):
                self.statement(child)

    def _on_compound_statement(self, node: Node) -> None:
        self._scopes.append({})
        for child in _children(node):
            self.statement(child)
        self._scopes.pop()

    def _on_declaration(self, node: Node) -> None:
        kind = node.child_by_field_name("type")
        if self._around and kind is not None and _VECTOR_TYPES.match(_text(kind)):
            self._around[-1].vector = True
        for declared in node.children_by_field_name("declarator"):
            name, value = _name(declared), None
            if declared.type == "init_declarator":
                given = declared.child_by_field_name("value")
                if given is not None and given.type == "lambda_expression":
                    self._scopes[-1][name] = self._closure(given)
                    continue
                if given is not None and given.type in ("initializer_list", "argument_list"):
                    parts = [self.value(part) for part in _children(given)]
                    value = parts[0] if len(parts) == 1 else None
                elif given is not None:
                    value = self.value(given)
            if any(child.type == "function_declarator" for child in (declared, *declared.named_children)):
                continue
            self._scopes[-1][name] = self._as_declared(value or self.unknown(), declared)

    def _closure(self, node: Node) -> _Closure:
        declarator = node.child_by_field_name("declarator")
        parameters = declarator.child_by_field_name("parameters") if declarator is not None else None
        return _Closure(parameters, node.child_by_field_name("body"), list(self._scopes))

    def _on_return_statement(self, node: Node) -> None:
        for child in _children(node):
            value = self.value(child)
            self._returned = value if self._returned is None else self._returned.or_else(value)

    def _on_if_statement(self, node: Node) -> None:
        truth = self.value(node.child_by_field_name("condition")).number
        branches = [node.child_by_field_name("consequence"), node.child_by_field_name("alternative")]
        if truth is not None:
            branches = [branches[0 if truth else 1]]
        before = [dict(scope) for scope in self._scopes]
        after: list[list[dict[str, Any]]] = []
        for branch in branches:
            for scope, kept in zip(self._scopes, before, strict=True):
                scope.clear()
                scope.update(kept)
            if branch is not None:
                self._scopes.append({})
                self.statement(branch)
                self._scopes.pop()
            if branch is None or not _leaves(branch):
                after.append([dict(scope) for scope in self._scopes])
        self._merge(after or [before])

    def _merge(self, states: list[list[dict[str, Any]]]) -> None:
        for at, scope in enumerate(self._scopes):
            scope.clear()
            scope.update(states[0][at])
            for state in states[1:]:
                for name, value in state[at].items():
                    mine = scope.get(name, value)
                    both = isinstance(mine, Value) and isinstance(value, Value)
                    scope[name] = mine.or_else(value) if both else value

    def _on_for_statement(self, node: Node) -> None:
        self._scopes.append({})
        start = node.child_by_field_name("initializer")
        if start is not None:
            self.statement(start)
        self._loop(
            node.child_by_field_name("condition"), node.child_by_field_name("update"), node.child_by_field_name("body")
        )
        self._scopes.pop()

    def _on_while_statement(self, node: Node) -> None:
        self._loop(node.child_by_field_name("condition"), None, node.child_by_field_name("body"))

    _on_do_statement = _on_while_statement

    def _on_for_range_loop(self, node: Node) -> None:
        self._body(Loop(self._symbol("L"), None, None, False, set()), {}, None, node.child_by_field_name("body"))

    # ---- loops ----

    def _loop(self, condition: Node | None, update: Node | None, body: Node) -> None:
        changes = self._changes(update, body)
        condition, negate = _guard(condition, body)
        name, bound, relation = self._bound(condition, changes, negate)
        start = self._look_up(name) if name else None
        step = changes.get(name) if name else None
        span = None
        if isinstance(start, Value) and bound is not None:
            down = relation in (">", ">=")
            span = start.plus(bound, -1) if down else bound.plus(start, -1)
            span = span.plus(Value.of(1)) if relation in ("<=", ">=") else span
        trip, exact = _trip(span, step)
        offset = set()
        for value in (start, bound):
            if isinstance(value, Value):
                offset |= self._loops_of(value)
        if trip == 0:
            return
        if trip == 1:
            self.statement(body)
            self._forget(changes)
            return
        self._body(Loop(self._symbol("L"), step, trip, exact, offset), changes, name, body)

    def _body(self, loop: Loop, changes: dict[str, Fraction | None], name: str | None, body: Node) -> None:
        for variable, step in changes.items():
            old = self._look_up(variable)
            if not isinstance(old, Value):
                continue
            if step is not None and (loop.step or variable == name):
                scale = Fraction(1) if loop.step is None else step / loop.step
                moved = Value.symbol(loop.symbol).times(Value.of(scale))
                self._assign(variable, old.plus(moved) if moved else self.unknown())
            elif variable == name:
                self._assign(variable, old.plus(Value.symbol(loop.symbol)))
            else:
                prefix = "@" if any(s[0] == "@" for s in old.symbols) else "?"
                self._assign(variable, self.unknown(prefix, self._loops_of(old) | {loop.symbol}))
        (self._around[-1].inner if self._around else self.top).append(loop)
        self._around.append(loop)
        kept = [dict(scope) for scope in self._scopes]
        self.statement(body)
        for scope, before in zip(self._scopes, kept, strict=True):
            scope.update({key: before[key] for key in before if key in changes})
        self._around.pop()
        if loop.vector and self._around:
            self._around[-1].vector = True
        self._forget(changes)

    def _forget(self, changes: dict[str, Fraction | None]) -> None:
        """After a loop its variables are anything."""
        for variable in changes:
            old = self._look_up(variable)
            if isinstance(old, Value):
                pointer = any(s[0] == "@" for s in old.symbols)
                self._assign(variable, self.unknown("@" if pointer else "?", self._loops_of(old) & self._open()))

    def _open(self) -> set[str]:
        return {loop.symbol for loop in self._around}

    def _changes(self, update: Node | None, body: Node) -> dict[str, Fraction | None]:
        """Variables that a loop changes → by how much per trip; None where that is not a constant."""
        found: dict[str, Fraction | None] = {}
        kinds = ("assignment_expression", "update_expression")
        own = [*_find(update, *kinds), *([update] if update.type in kinds else [])] if update is not None else []
        within = [*_find(body, *kinds), *([body.children[0]] if body.type in kinds else [])]
        declared = {_name(d) for n in _find(body, "declaration") for d in n.children_by_field_name("declarator")}
        for node in (*own, *within):
            target = node.child_by_field_name("left") or node.child_by_field_name("argument")
            if target is None or target.type != "identifier":
                continue
            name = _text(target)
            if name in declared and node not in own:
                continue
            amount = self._amount(node, name) if node in own or _always(node, body) else None
            before = found.get(name, Fraction())
            found[name] = None if amount is None or before is None else before + amount
        return found

    def _amount(self, node: Node, name: str) -> Fraction | None:
        """What an assignment adds to `name`."""
        operator = _text(node.child_by_field_name("operator"))
        if node.type == "update_expression":
            return Fraction(1 if operator == "++" else -1)
        right = node.child_by_field_name("right")
        if operator in ("+=", "-="):
            value = self.peek(right)
            return None if value is None else value * (1 if operator == "+=" else -1)
        if (
            operator == "="
            and right.type == "binary_expression"
            and _text(right.child_by_field_name("operator")) in "+-"
        ):
            left, other = right.child_by_field_name("left"), right.child_by_field_name("right")
            sign = 1 if _text(right.child_by_field_name("operator")) == "+" else -1
            if _text(other) == name and sign == 1:
                left, other = other, left
            value = self.peek(other) if _text(left) == name else None
            return None if value is None else sign * value
        return None

    def peek(self, node: Node) -> Fraction | None:
        return self.value(node).number

    def _bound(
        self, condition: Node | None, changes: dict[str, Fraction | None], negate: bool
    ) -> tuple[str | None, Value | None, str]:
        """The variable that a loop's condition is about, its bound, and the relation between them."""
        if condition is None:
            return None, None, ""
        for node in (condition, *_find(condition, "binary_expression")):
            if node.type != "binary_expression":
                continue
            relation = _text(node.child_by_field_name("operator"))
            if negate:
                relation = _NEGATED.get(relation, "")
            if relation not in _MIRRORED:
                continue
            sides = [node.child_by_field_name("left"), node.child_by_field_name("right")]
            for side, other, sense in ((sides[0], sides[1], relation), (sides[1], sides[0], _MIRRORED[relation])):
                names = [
                    n
                    for n in ([side] if side.type == "identifier" else _find(side, "identifier"))
                    if _text(n) in changes
                ]
                if not names:
                    continue
                name = _text(names[0])
                now, old = self.value(side), self._look_up(name)
                bound = self.value(other)
                if isinstance(old, Value):  # j + 16 <= N bounds j by N − 16
                    bound = bound.plus(now.plus(old, -1), -1)
                return name, bound, sense
        return None, None, ""

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
        for scope in reversed(self._scopes):
            if name in scope:
                scope[name] = value
                return
        self._scopes[-1][name] = value

    # ---- expressions ----

    def value(self, node: Node | None) -> Value:
        self._nodes += 1
        if self._nodes > _MAX_NODES:
            raise _TooLarge
        handler = getattr(self, f"_eval_{node.type}", None) if node is not None else None
        if handler is not None:
            result = handler(node)
            return result if isinstance(result, Value) else self.unknown()
        taint: set[str] = set()
        for child in _children(node) if node is not None else []:
            if child.type != "lambda_expression":
                taint |= self._loops_of(self.value(child))
        return self.unknown(taint=taint)

    def _eval_number_literal(self, node: Node) -> Value | None:
        text = _text(node).replace("'", "").lower()
        try:
            return Value.of(int(text.rstrip("ul"), 0))
        except ValueError:
            return None

    def _eval_true(self, node: Node) -> Value:
        return Value.of(1)

    def _eval_false(self, node: Node) -> Value:
        return Value.of(0)

    def _eval_identifier(self, node: Node) -> Any:
        return self._look_up(_text(node))

    def _eval_qualified_identifier(self, node: Node) -> Any:
        name = _text(node)
        return self._look_up(name) or self._look_up(name.rpartition("::")[2])

    def _only(self, node: Node) -> Value:
        values = [self.value(child) for child in _children(node)]
        return values[-1] if values else self.unknown()

    _eval_parenthesized_expression = _only
    _eval_condition_clause = _only
    _eval_comma_expression = _only

    def _eval_cast_expression(self, node: Node) -> Value:
        return self.value(node.child_by_field_name("value"))

    def _eval_unary_expression(self, node: Node) -> Value | None:
        inner = self.value(node.child_by_field_name("argument"))
        operator = _text(node.child_by_field_name("operator"))
        if operator == "!":
            return None if inner.number is None else Value.of(int(not inner.number))
        return inner.times(Value.of(-1)) if operator == "-" else inner if operator == "+" else None

    def _eval_binary_expression(self, node: Node) -> Value | None:
        operator = _text(node.child_by_field_name("operator"))
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
            return one if truth else two
        return one.or_else(two)

    def _eval_assignment_expression(self, node: Node) -> Value:
        target, operator = node.child_by_field_name("left"), _text(node.child_by_field_name("operator"))
        value = self.value(node.child_by_field_name("right"))
        if target.type != "identifier":
            self.value(target)
            return value
        old = self._look_up(_text(target))
        if operator in ("+=", "-="):
            value = old.plus(value, 1 if operator == "+=" else -1) if isinstance(old, Value) else self.unknown()
        elif operator != "=":
            value = self.unknown(taint=self._loops_of(value))
        if isinstance(old, Value) and any(s[0] == "@" for s in old.symbols):
            value = value if any(s[0] == "@" for s in value.symbols) else value.plus(self.unknown("@"))
        self._assign(_text(target), value)
        return value

    def _eval_update_expression(self, node: Node) -> Value:
        target = node.child_by_field_name("argument")
        old = self.value(target)
        moved = old.plus(Value.of(1 if _text(node.child_by_field_name("operator")) == "++" else -1))
        if target.type == "identifier":
            self._assign(_text(target), moved)
        return moved if node.children[0].type in ("++", "--") else old

    def _eval_subscript_expression(self, node: Node) -> Value:
        base = self.value(node.child_by_field_name("argument"))
        indices = node.child_by_field_name("indices")
        parts = [self.value(child) for child in _children(indices)] if indices is not None else []
        index = parts[0] if len(parts) == 1 else self.unknown()
        self._address(base.plus(index))
        return self.unknown(taint=self._loops_of(base) | self._loops_of(index))

    def _eval_pointer_expression(self, node: Node) -> Value:
        argument = node.child_by_field_name("argument")
        if _text(node.child_by_field_name("operator")) == "&" and argument.type == "subscript_expression":
            base = self.value(argument.child_by_field_name("argument"))
            indices = argument.child_by_field_name("indices")
            parts = [self.value(child) for child in _children(indices)]
            where = base.plus(parts[0]) if len(parts) == 1 else self.unknown("@")
            self._address(where)
            return where if any(s[0] == "@" for s in where.symbols) else where.plus(self.unknown("@"))
        inner = self.value(argument)
        self._address(inner)
        return self.unknown(taint=self._loops_of(inner))

    def _eval_lambda_expression(self, node: Node) -> None:
        return None

    def _eval_call_expression(self, node: Node) -> Any:
        function = node.child_by_field_name("function")
        listed = node.child_by_field_name("arguments")
        given = _children(listed) if listed is not None else []
        arguments: list[Any] = []
        for argument in given:
            if argument.type == "lambda_expression":
                arguments.append(self._closure(argument))
            elif argument.type == "identifier" and isinstance(self._look_up(_text(argument)), _Closure):
                arguments.append(self._look_up(_text(argument)))
            else:
                arguments.append(self.value(argument))
        name, template = self._callee(function)
        short = name.rpartition("::")[2]
        values = [argument for argument in arguments if isinstance(argument, Value)]
        if _CASTS.match(short) and len(values) == 1:
            return values[0]
        if short in ("min", "max") and len(values) == 2 and len(given) == 2:
            for value in values:
                self._touch(name, value)
            return values[0].or_else(values[1])
        if function.type == "lambda_expression":
            return self._invoke(self._closure(function), arguments, {})
        closure = self._look_up(name)
        if isinstance(closure, _Closure):
            return self._invoke(closure, arguments, {})
        if short in self.functions and not name.startswith(("std::", "evo::")):
            return self.enter(self.functions[short], arguments, template)
        for value in values:
            self._touch(name, value)
        if name.startswith("omp_") or not values:
            return None
        return self.unknown(taint=set().union(*(self._loops_of(value) for value in values)))

    def _callee(self, function: Node) -> tuple[str, list[Value]]:
        """Its name without template arguments, and those of these that are values."""
        node, values = function, []
        for inner in (function, *_find(function, "template_function")):
            if inner.type == "template_function":
                listed = inner.child_by_field_name("arguments")
                values = (
                    [self.value(c) for c in _children(listed) if c.type not in ("type_descriptor",)] if listed else []
                )
                node = inner.child_by_field_name("name")
                break
        name = _text(function).partition("<")[0].strip() if node is not function else _text(function)
        return name, values

    def _touch(self, name: str, value: Value) -> None:
        """An argument of a function that is not the kernel's own: vector work, an address perhaps."""
        if self._around and (_VECTOR_NAMES.match(name) or name.startswith("_mm")):
            self._around[-1].vector = True
        if any(symbol[0] == "@" for symbol in value.symbols):
            self._address(value)

    # ---- what it is all for ----

    def _address(self, where: Value) -> None:
        """Marks the loops that walk within a step of a loop around them in this address."""
        for affine in where.alternatives:
            involved = [loop for loop in self._around if affine.coefficient(loop.symbol)]
            for at, inner in enumerate(involved):
                inner.within |= {o.symbol for o in involved[:at] if self._within(affine, o, inner)}

    def _within(self, affine: Affine, outer: Loop, inner: Loop) -> bool:
        of_outer, of_inner = abs(affine.coefficient(outer.symbol)), abs(affine.coefficient(inner.symbol))
        if outer.step is not None and inner.span is not None:
            stride = of_outer * abs(outer.step)
            if abs(outer.step) == 1 and stride in self._strides:
                return False
            return stride > 1 and Fraction(1, 2) < of_inner * inner.span / stride <= 1
        return outer.step != 1 and outer.symbol in inner.offset_by


def _constant(operator: str, a: Fraction, b: Fraction) -> Value | None:
    """Arithmetic of known integers as C does it."""
    if operator in ("/", "%"):
        if b == 0:
            return None
        quotient = math.trunc(a / b)
        return Value.of(quotient if operator == "/" else a - quotient * b)
    results = {
        "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "==": a == b, "!=": a != b,
        "&&": bool(a and b), "||": bool(a or b),
    }  # fmt: skip
    if operator in results:
        return Value.of(int(results[operator]))
    if operator in ("<<", ">>") and 0 <= b < 63:
        return Value.of(int(a) << int(b) if operator == "<<" else int(a) >> int(b))
    if operator in ("&", "|"):
        return Value.of(int(a) & int(b) if operator == "&" else int(a) | int(b))
    return None


def _trip(span: Value | None, step: Fraction | None) -> tuple[int | None, bool]:
    """An upper bound of a loop's trips, and whether it is exact."""
    if span is None or not step:
        return None, False
    known = [max(0, math.ceil(number / abs(step))) for number in span.numbers()]
    return (min(known), len(span.alternatives) == 1) if known else (None, False)


def _leaves(branch: Node) -> bool:
    """Whether a branch ends the function or the trip, so that nothing flows on from it."""
    last = branch
    while last.type in ("compound_statement", "else_clause") and _children(last):
        last = _children(last)[-1]
    return last.type in ("return_statement", "break_statement", "continue_statement", "goto_statement")


def _always(node: Node, body: Node) -> bool:
    """Whether `node` runs exactly once per trip of the loop whose body is `body`."""
    conditional = (
        "for_statement", "while_statement", "do_statement", "if_statement", "conditional_expression",
        "switch_statement", "for_range_loop", "lambda_expression",
    )  # fmt: skip
    above = node.parent
    while above is not None and above != body:
        if above.type in conditional:
            return False
        above = above.parent
    return True


def _guard(condition: Node | None, body: Node) -> tuple[Node | None, bool]:
    """A loop's condition, or that of an ``if (…) break;`` which opens its body (negated then)."""
    inner = condition
    while inner is not None and inner.type in ("condition_clause", "parenthesized_expression") and _children(inner):
        inner = _children(inner)[0]
    if inner is not None and inner.type not in ("true", "number_literal"):
        return inner, False
    first = _children(body)[0] if body.type == "compound_statement" and _children(body) else None
    if first is not None and first.type == "if_statement" and first.child_by_field_name("alternative") is None:
        then = first.child_by_field_name("consequence")
        while then.type == "compound_statement" and len(_children(then)) == 1:
            then = _children(then)[0]
        if then.type == "break_statement":
            test = first.child_by_field_name("condition")
            while test.type in ("condition_clause", "parenthesized_expression") and _children(test):
                test = _children(test)[0]
            return test, True
    return None, False
