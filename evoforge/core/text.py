"""Text from outside, as it can be kept."""

from __future__ import annotations

__all__ = ["storable"]


def storable(text: str) -> str:
    """`text` with zero bytes and broken characters spelled out: what a tool or a model wrote may hold both."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
