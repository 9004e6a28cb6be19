"""Which aten operators are covered: name → handler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["HANDLERS", "Handler", "register"]

Handler = Callable[..., Any]
"""``handler(builder, *args, **kwargs)`` with the node's own arguments, tensors as `Value`s; returns a
`Value`, a tuple of them, or None for an operator without a result."""

HANDLERS: dict[str, Handler] = {}
"""``aten.<name>.<overload>`` → handler. What is in here is kept whole by the capture; the rest is
decomposed by torch first."""


_H = TypeVar("_H", bound=Handler)


def register(*names: str) -> Callable[[_H], _H]:
    """Enters a handler under ``aten.`` + each name; without an overload, ``.default`` is meant."""

    def enter(handler: _H) -> _H:
        for name in names:
            full = f"aten.{name}" if "." in name else f"aten.{name}.default"
            if full in HANDLERS:
                raise ValueError(f"{full} has two handlers")
            HANDLERS[full] = handler
        return handler

    return enter
