"""Small questions about tree-sitter's C++ nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["Node", "children", "declared_name", "find", "is_pointer", "leaves", "loop_test", "runs_once", "text_of"]

Node = Any  # tree_sitter.Node; the grammar is imported only where it is used


def text_of(node: Node) -> str:
    return str(node.text.decode(errors="replace"))


def children(node: Node) -> list[Node]:
    return [child for child in node.named_children if child.type != "comment"]


def find(node: Node, *types: str) -> Iterator[Node]:
    """Every descendant of one of `types`, bodies of lambdas left out."""
    for child in node.named_children:
        if child.type in types:
            yield child
        if child.type != "lambda_expression":
            yield from find(child, *types)


def declared_name(declarator: Node | None) -> str:
    """The name that a declarator declares."""
    names = ("identifier", "field_identifier", "qualified_identifier", "operator_name")
    while declarator is not None and declarator.type not in names:
        following = declarator.child_by_field_name("declarator")
        if following is None:
            following = next((c for c in children(declarator) if c.type.endswith(("declarator", "identifier"))), None)
        declarator = following
    return text_of(declarator) if declarator is not None else ""


def is_pointer(declarator: Node | None) -> bool:
    while declarator is not None:
        if declarator.type in ("pointer_declarator", "array_declarator"):
            return True
        declarator = declarator.child_by_field_name("declarator")
    return False


def leaves(branch: Node) -> bool:
    """Whether a branch ends the function or the trip, so that nothing flows on from it."""
    last = branch
    while last.type in ("compound_statement", "else_clause") and children(last):
        last = children(last)[-1]
    return last.type in ("return_statement", "break_statement", "continue_statement", "goto_statement")


def runs_once(node: Node, body: Node) -> bool:
    """Whether `node` runs exactly once per trip of the loop whose body is `body`."""
    conditional = (
        "for_statement", "while_statement", "do_statement", "if_statement", "conditional_expression",
        "switch_statement", "for_range_loop", "lambda_expression",
    )  # fmt: skip
    above = node.parent
    while above is not None:
        if above.type in conditional:
            return False
        if above == body:
            return True
        above = above.parent
    return False


def loop_test(condition: Node | None, body: Node) -> tuple[Node | None, bool]:
    """A loop's condition, or that of an ``if (…) break;`` which opens its body (negated then)."""
    inner = condition
    while inner is not None and inner.type in ("condition_clause", "parenthesized_expression") and children(inner):
        inner = children(inner)[0]
    if inner is not None and inner.type not in ("true", "number_literal"):
        return inner, False
    first = children(body)[0] if body.type == "compound_statement" and children(body) else None
    if first is not None and first.type == "if_statement" and first.child_by_field_name("alternative") is None:
        then = first.child_by_field_name("consequence")
        while then.type == "compound_statement" and len(children(then)) == 1:
            then = children(then)[0]
        if then.type == "break_statement":
            test = first.child_by_field_name("condition")
            while test.type in ("condition_clause", "parenthesized_expression") and children(test):
                test = children(test)[0]
            return test, True
    return None, False
