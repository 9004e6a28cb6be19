"""Text from outside, as it can be kept, and what no text may hold."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

__all__ = ["cut", "printable", "secrets_of", "storable"]

_SECRET_NAME = re.compile(r"(API_?KEY|_KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS?)$", re.IGNORECASE)
_SHORTEST = 6  # hiding less would eat ordinary words


def storable(text: str) -> str:
    """`text` with zero bytes and broken characters spelled out: what a tool or a model wrote may hold both."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def cut(text: str, limit: int = 80) -> str:
    """`text`, or so much of it as fits a message."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def printable(text: str, kept: str = "") -> str:
    """`text` with spaces for what is no visible sign, but for those of `kept`: a terminal obeys some of them."""
    return "".join(sign if sign.isprintable() or sign in kept else " " for sign in text)


def secrets_of(environ: Mapping[str, str] | None = None) -> list[str]:
    """The values of variables that are named like keys and passwords, the longest first; none below six characters."""
    environ = os.environ if environ is None else environ
    found = {value for name, value in environ.items() if _SECRET_NAME.search(name) and len(value) >= _SHORTEST}
    return sorted(found, key=len, reverse=True)
