"""The kernel's own functions: which one a call means, and what it takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evoforge.evaluation.facts.affine import Value
from evoforge.evaluation.facts.nodes import Node, children, declared_name, find, is_pointer

__all__ = ["CLASSES", "Functions", "parameter_list", "parameters", "template_names"]

CLASSES = ("struct_specifier", "class_specifier")
_PARAMETERS = ("parameter_declaration", "optional_parameter_declaration")


class Functions:
    """Definitions by their last name: ``work`` for ``tools::work`` and ``Tool<8>::work``."""

    def __init__(self) -> None:
        self._named: dict[str, list[Node]] = {}

    def add(self, definition: Node) -> None:
        name = declared_name(definition.child_by_field_name("declarator")).rpartition("::")[2]
        if definition.child_by_field_name("body") is not None:
            self._named.setdefault(name, []).append(definition)

    def called(self, name: str, arguments: Sequence[Any]) -> Node | None:
        """The one that fits the arguments best: as many, and pointers where there are some."""

        def misfit(definition: Node) -> tuple[int, int]:
            declared = parameters(parameter_list(definition))
            pointers = sum(
                isinstance(given, Value) and given.is_pointer != is_pointer(parameter.child_by_field_name("declarator"))
                for given, parameter in zip(arguments, declared, strict=False)
            )
            return abs(len(declared) - len(arguments)), pointers

        return min(self._named.get(name, []), key=misfit, default=None)


def parameter_list(definition: Node) -> Node | None:
    declarator = definition.child_by_field_name("declarator")
    while declarator is not None and declarator.type != "function_declarator":
        declarator = declarator.child_by_field_name("declarator") or next(
            (child for child in children(declarator) if child.type.endswith("declarator")), None
        )
    return declarator.child_by_field_name("parameters") if declarator is not None else None


def parameters(listed: Node | None) -> list[Node]:
    return [child for child in (children(listed) if listed is not None else []) if child.type in _PARAMETERS]


def template_names(definition: Node) -> list[str]:
    """Values that a function, or the class around it, is a template over; types are left out."""
    holder = definition.parent
    while holder is not None and holder.type in ("field_declaration_list", *CLASSES):
        holder = holder.parent
    if holder is None or holder.type != "template_declaration":
        return []
    return [declared_name(parameter) for parameter in find(holder, *_PARAMETERS)]
