"""Follows a kernel's control flow just far enough to know its loops (see syntax.py)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from evoforge.evaluation.facts.affine import Affine, Number, Value
from evoforge.evaluation.facts.expressions import Closure, Expressions, TooLarge
from evoforge.evaluation.facts.functions import CLASSES, Functions, parameter_list, parameters, template_names
from evoforge.evaluation.facts.nodes import (
    Node,
    children,
    declared_name,
    find,
    is_pointer,
    leaves,
    loop_test,
    runs_once,
    text_of,
)

__all__ = ["Loop", "Nest", "run_nest"]

_MAX_CALLS = 12
_VECTOR_NAMES = re.compile(r"^(_mm\d*_|evo::|__builtin_ia32)|^(load|store|stream|gather)$")
_VECTOR_TYPES = re.compile(r"^(evo::)?i?vec$|^__m(128|256|512)[id]?$")
_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "!=": "=="}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "!=": "!="}


@dataclass(eq=False)
class Loop:
    """One loop as it is reached. `step` in units of its variable; `trip` is an upper bound, `exact`
    when it is the number itself; `span` = trip · step; `offset_by`: loops in its start or bound;
    `within`: loops around it within one step of which it walks, in some address."""

    symbol: str
    step: Number | None
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
    def unit(self) -> bool:
        return self.step is not None and abs(self.step.value) == 1

    @property
    def span(self) -> Fraction | None:
        return None if self.trip is None or self.step is None else self.trip * abs(self.step.value)


@dataclass
class Nest:
    """The outermost loops of `evo_run`; `lanes` is the number of floats in a vector."""

    loops: list[Loop]
    lanes: int


def run_nest(text: str, *, lanes: int, strides: frozenset[int], known: Mapping[str, int]) -> Nest | None:
    """The loops that `evo_run` runs; None if it is not defined, or too large to follow.

    Args:
        strides: distances between neighbours along the tensors' dimensions, in elements: a loop
            that moves by one of these walks a dimension and is no loop over tiles.
        known: numbers in what `evo_run` is called with, as it is written behind ``call->``.
    """
    import tree_sitter_cpp
    from tree_sitter import Language, Parser

    tree = Parser(Language(tree_sitter_cpp.language())).parse(text.encode())
    walk = _Walk(lanes, strides, known)
    try:
        walk.declare(tree.root_node)
        entry = walk.functions.called("evo_run", [])
        if entry is None:
            return None
        walk.enter(entry, [])
    except (TooLarge, RecursionError):
        return None
    return Nest(walk.top, lanes)


class _Walk(Expressions):
    """Abstract execution; `scopes` hold values and closures by name, innermost last."""

    def __init__(self, lanes: int, strides: frozenset[int], known: Mapping[str, int]) -> None:
        super().__init__(lanes, known)
        self.functions = Functions()
        self.top: list[Loop] = []
        self._strides = strides
        self._around: list[Loop] = []
        self._calls = 0
        self._returned: Value | None = None
        self._gone = False  # what comes next in the text is not reached from what came before it

    # ---- declarations ----

    def declare(self, node: Node) -> None:
        """Functions and constants of the file, those in namespaces, classes and linkage blocks too."""
        for child in children(node):
            self._count()
            if child.type == "function_definition":
                self.functions.add(child)
            elif child.type in CLASSES:
                self._on_struct_specifier(child)
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
        for item in find(node, "enumerator"):
            given = item.child_by_field_name("value")
            value = self.value(given) if given is not None else following
            self._scopes[-1][text_of(item.child_by_field_name("name"))] = value
            following = value.plus(Value.of(1))

    def enter(self, function: Node, arguments: list[Any], template: list[Value] | None = None) -> Value:
        closure = Closure(parameter_list(function), function.child_by_field_name("body"), self._scopes[:1])
        values: dict[str, Any] = dict(zip(template_names(function), template or [], strict=False))
        return self._invoke(closure, arguments, values)

    def _invoke(self, closure: Closure, arguments: list[Any], values: dict[str, Any]) -> Value:
        if self._calls >= _MAX_CALLS or closure.body is None:
            return self.unknown()
        frame: dict[str, Any] = dict(values)
        for at, parameter in enumerate(parameters(closure.parameters)):
            declarator = parameter.child_by_field_name("declarator")
            given = arguments[at] if at < len(arguments) else self.unknown()
            frame[declared_name(declarator)] = self._as_declared(given, declarator)
        saved, self._scopes = self._scopes, [*closure.scopes, frame]
        returned, self._returned = self._returned, None
        self._calls += 1
        self.statement(closure.body)
        self._calls -= 1
        self._gone = False
        result, self._returned = self._returned, returned
        self._scopes = saved
        return result if result is not None else self.unknown()

    def _as_declared(self, value: Any, declarator: Node | None) -> Any:
        """A pointer whose origin is unknown gets a symbol of its own."""
        if isinstance(value, Value) and is_pointer(declarator) and not value.is_pointer:
            return value.plus(self.unknown("@"))
        return value

    # ---- statements ----

    def statement(self, node: Node) -> None:
        self._count()
        self._gone = self._gone and node.type not in ("labeled_statement", "case_statement")
        handler = getattr(self, f"_on_{node.type}", None)
        if self._gone:
            return
        if handler is not None:
            handler(node)
        elif node.type.endswith("expression") or node.type == "comma_expression":
            self.value(node)
        elif not node.type.startswith("preproc") and node.type not in ("function_definition", "template_declaration"):
            for child in children(node):
                self.statement(child)

    def _on_compound_statement(self, node: Node) -> None:
        self._scopes.append({})
        for child in children(node):
            self.statement(child)
        self._scopes.pop()

    def _on_declaration(self, node: Node) -> None:
        kind = node.child_by_field_name("type")
        if self._around and kind is not None and _VECTOR_TYPES.match(text_of(kind)):
            self._around[-1].vector = True
        for declared in node.children_by_field_name("declarator"):
            name, value = declared_name(declared), None
            if declared.type == "init_declarator":
                given = declared.child_by_field_name("value")
                if given is not None and given.type == "lambda_expression":
                    self._scopes[-1][name] = self._closure(given)
                    continue
                if given is not None and given.type in ("initializer_list", "argument_list"):
                    parts = [self.value(part) for part in children(given)]
                    value = parts[0] if len(parts) == 1 else None
                elif given is not None:
                    value = self.value(given)
            if any(child.type == "function_declarator" for child in (declared, *declared.named_children)):
                continue
            self._scopes[-1][name] = self._as_declared(value or self.unknown(), declared)

    def _on_return_statement(self, node: Node) -> None:
        for child in children(node):
            value = self.value(child)
            self._returned = value if self._returned is None else self._returned.or_else(value)
        self._gone = True

    def _on_break_statement(self, node: Node) -> None:
        self._gone = True

    _on_continue_statement = _on_goto_statement = _on_break_statement

    def _on_switch_statement(self, node: Node) -> None:
        self.value(node.child_by_field_name("condition"))
        self.statement(node.child_by_field_name("body"))
        self._gone = False

    def _on_if_statement(self, node: Node) -> None:
        truth = self.value(node.child_by_field_name("condition")).number
        branches = [node.child_by_field_name("consequence"), node.child_by_field_name("alternative")]
        if truth is not None:
            branches = [branches[0 if truth.value else 1]]
        before = [dict(scope) for scope in self._scopes]
        after: list[list[dict[str, Any]]] = []
        gone: list[bool] = []
        for branch in branches:
            for scope, kept in zip(self._scopes, before, strict=True):
                scope.clear()
                scope.update(kept)
            if branch is not None:
                self._scopes.append({})
                self.statement(branch)
                self._scopes.pop()
            gone.append(self._gone)
            self._gone = False
            if branch is None or not leaves(branch):
                after.append([dict(scope) for scope in self._scopes])
        self._merge(after or [before])
        self._gone = all(gone)

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

    def _on_struct_specifier(self, node: Node) -> None:
        if (body := node.child_by_field_name("body")) is not None:
            self.declare(body)

    _on_class_specifier = _on_struct_specifier

    def _on_for_range_loop(self, node: Node) -> None:
        self._body(Loop(self._symbol("L"), None, None, False, set()), {}, None, node.child_by_field_name("body"))

    # ---- loops ----

    def _loop(self, condition: Node | None, update: Node | None, body: Node) -> None:
        changes = self._changes(update, body)
        condition, negate = loop_test(condition, body)
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
            self._gone = False
            self._forget(changes)
            return
        self._body(Loop(self._symbol("L"), step, trip, exact, offset), changes, name, body)

    def _body(self, loop: Loop, changes: dict[str, Number | None], name: str | None, body: Node) -> None:
        for variable, step in changes.items():
            old = self._look_up(variable)
            if not isinstance(old, Value):
                continue
            if step is not None and (variable == name or loop.step) and (loop.step is None or loop.step.value):
                scale = Number.of(1) if loop.step is None else step.per(loop.step)
                self._assign(variable, old.plus(Value.symbol(loop.symbol, scale)))
            elif variable == name:
                self._assign(variable, old.plus(Value.symbol(loop.symbol)))
            else:
                prefix = "@" if old.is_pointer else "?"
                self._assign(variable, self.unknown(prefix, self._loops_of(old) | {loop.symbol}))
        with self._inside(loop):
            self.statement(body)
        self._gone = False
        self._forget(changes)

    @contextmanager
    def _inside(self, loop: Loop) -> Iterator[None]:
        (self._around[-1].inner if self._around else self.top).append(loop)
        self._around.append(loop)
        yield
        self._around.pop()
        if loop.vector and self._around:
            self._around[-1].vector = True

    def _forget(self, changes: dict[str, Number | None]) -> None:
        """After a loop its variables are anything."""
        for variable in changes:
            old = self._look_up(variable)
            if isinstance(old, Value):
                self._assign(variable, self.unknown("@" if old.is_pointer else "?", self._loops_of(old) & self._open()))

    def _open(self) -> set[str]:
        return {loop.symbol for loop in self._around}

    def _changes(self, update: Node | None, body: Node) -> dict[str, Number | None]:
        """Variables that a loop changes → by how much per trip; None where that is not a constant."""
        self._count(body.descendant_count)
        found: dict[str, Number | None] = {}
        kinds = ("assignment_expression", "update_expression")
        own = [*find(update, *kinds), *([update] if update.type in kinds else [])] if update is not None else []
        within = [*find(body, *kinds), *([body.children[0]] if body.type in kinds else [])]
        declared = {declared_name(d) for n in find(body, "declaration") for d in n.children_by_field_name("declarator")}
        for node in (*own, *within):
            target = node.child_by_field_name("left") or node.child_by_field_name("argument")
            if target is None or target.type != "identifier":
                continue
            name = text_of(target)
            if name in declared and node not in own:
                continue
            amount = self._amount(node, name) if node in own or runs_once(node, body) else None
            before = found.get(name, Number.of(0))
            found[name] = None if amount is None or before is None else before + amount
        return found

    def _amount(self, node: Node, name: str) -> Number | None:
        """What an assignment adds to `name`."""
        operator = text_of(node.child_by_field_name("operator"))
        if node.type == "update_expression":
            return Number.of(1 if operator == "++" else -1)
        right = node.child_by_field_name("right")
        if operator in ("+=", "-="):
            value = self.value(right).number
            return None if value is None else value * Number.of(1 if operator == "+=" else -1)
        if (
            operator == "="
            and right.type == "binary_expression"
            and text_of(right.child_by_field_name("operator")) in "+-"
        ):
            left, other = right.child_by_field_name("left"), right.child_by_field_name("right")
            sign = 1 if text_of(right.child_by_field_name("operator")) == "+" else -1
            if text_of(other) == name and sign == 1:
                left, other = other, left
            value = self.value(other).number if text_of(left) == name else None
            return None if value is None else value * Number.of(sign)
        return None

    def _bound(
        self, condition: Node | None, changes: dict[str, Number | None], negate: bool
    ) -> tuple[str | None, Value | None, str]:
        """The variable that a loop's condition is about, its bound, and the relation between them."""
        if condition is None:
            return None, None, ""
        for node in (condition, *find(condition, "binary_expression")):
            if node.type != "binary_expression":
                continue
            relation = text_of(node.child_by_field_name("operator"))
            if negate:
                relation = _NEGATED.get(relation, "")
            if relation not in _MIRRORED:
                continue
            sides = [node.child_by_field_name("left"), node.child_by_field_name("right")]
            for side, other, sense in ((sides[0], sides[1], relation), (sides[1], sides[0], _MIRRORED[relation])):
                names = [
                    n
                    for n in ([side] if side.type == "identifier" else find(side, "identifier"))
                    if text_of(n) in changes
                ]
                if not names:
                    continue
                name = text_of(names[0])
                now, old = self.value(side), self._look_up(name)
                bound = self.value(other)
                if isinstance(old, Value):  # j + 16 <= N bounds j by N − 16
                    bound = bound.plus(now.plus(old, -1), -1)
                return name, bound, sense
        return None, None, ""

    # ---- what expressions do ----

    def _call(self, name: str, arguments: list[Any], template: list[Value]) -> Value | None:
        """Runs the kernel's own functions; others may be vector work, and get addresses."""
        short = re.split(r"::|\.|->", name)[-1]
        own = None if name.startswith(("std::", "evo::")) else self.functions.called(short, arguments)
        if own is None and self._look_up(name) is not None:
            own = self.functions.called("operator()", arguments)
        if own is not None:
            return self.enter(own, arguments, template)
        if self._around and _VECTOR_NAMES.match(name):
            self._around[-1].vector = True
        values = [argument for argument in arguments if isinstance(argument, Value)]
        for value in values:
            if value.is_pointer:
                self._address(value)
        for argument in arguments:
            if isinstance(argument, Closure):
                self._repeat(argument, [Value.of(1)] if name == "evo::alone" else template)
        taint: set[str] = set().union(*(self._loops_of(value) for value in values))
        return self.unknown(taint=taint)

    def _repeat(self, closure: Closure, template: list[Value]) -> None:
        """A lambda given to a function that is not the kernel's own runs in a loop of it.

        The first template argument is how often, as in ``evo::unroll<4>([&](auto u) { … })``.
        """
        count = template[0].number if template else None
        if count is not None and count.value <= 1:
            self._invoke(closure, [Value.of(0)], {})
            return
        trip = None if count is None else int(count.value)
        loop = Loop(self._symbol("L"), Number.of(1), trip, trip is not None, set())
        with self._inside(loop):
            self._invoke(closure, [Value.symbol(loop.symbol)], {})

    def _address(self, where: Value) -> None:
        """Notes which loops walk within a step of a loop around them in this address."""
        for affine in where.alternatives:
            hidden: set[str] = set().union(*(self._taints.get(symbol, set()) for symbol, _ in affine.terms))
            for at, inner in enumerate(self._around):
                if affine.coefficient(inner.symbol):
                    for outer in self._around[:at]:
                        if affine.coefficient(outer.symbol):
                            found = self._within(affine, outer, inner)
                        else:  # a pointer that several loops push on: the bounds have to tell
                            found = outer.symbol in hidden & inner.offset_by and not outer.unit
                        if found:
                            inner.within.add(outer.symbol)

    def _within(self, affine: Affine, outer: Loop, inner: Loop) -> bool:
        of_outer, of_inner = affine.coefficient(outer.symbol), affine.coefficient(inner.symbol)
        if outer.step is None or inner.span is None or of_outer is None or of_inner is None:
            return not outer.unit and outer.symbol in inner.offset_by
        stride = abs(of_outer.value * outer.step.value)
        chosen = of_outer.chosen * outer.step.chosen != of_inner.chosen
        if not chosen and (outer.unit or stride in self._strides):
            return False  # the loops walk dimensions of the task
        return stride > 1 and Fraction(1, 2) < abs(of_inner.value) * inner.span / stride <= 1


def _trip(span: Value | None, step: Number | None) -> tuple[int | None, bool]:
    """An upper bound of a loop's trips, and whether it is exact."""
    if span is None or step is None or not step.value:
        return None, False
    known = [max(0, math.ceil(number.value / abs(step.value))) for number in span.numbers()]
    return (min(known), len(span.alternatives) == 1) if known else (None, False)
