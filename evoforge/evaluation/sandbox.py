"""What confines the processes that read or run what others wrote, and how far that goes on this machine."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from evoforge.errors import UsageError
from evoforge.evaluation.native import native_program

__all__ = ["LAYERS", "confined", "reached_layers", "require", "weakest"]

LAYERS = ("namespaces", "landlock", "seccomp")
_NEEDED = {"strict": LAYERS, "basic": ("seccomp",), "none": ()}


def confined(readable: Iterable[Path | str], writable: Iterable[Path | str], *options: str) -> list[str | Path]:
    """The start of a command line that runs the rest with every layer that there is.

    Args:
        readable: what the program may read and run, with all that lies below; the rest it cannot open.
        writable: what it may also write to.
        options: further ones of native/launch.c.
    """
    paths = [text for path in readable for text in ("-r", str(path))]
    paths += [text for path in writable for text in ("-w", str(path))]
    return [native_program("launch.c"), "-s", *paths, *options, "--"]


@lru_cache(maxsize=1)
def reached_layers() -> frozenset[str]:
    """The layers of `LAYERS` that this machine grants this user, found by taking them."""
    done = subprocess.run(
        [native_program("launch.c"), "-s", "-q"], capture_output=True, text=True, timeout=20, check=False
    )
    return frozenset(done.stdout.split())


def weakest(level: str) -> str:
    """The lower of a runner's level and of the one that compilers and workers reach on this machine."""
    levels = list(_NEEDED)
    return next(one for one in levels[levels.index(level) :] if reached_layers().issuperset(_NEEDED[one]))


def require(level: str) -> None:
    """Checks that a sandbox level can be reached: strict needs every layer, basic the filter.

    Raises:
        UsageError: it cannot.
    """
    missing = [layer for layer in _NEEDED[level] if layer not in reached_layers()]
    if missing:
        lower = "basic" if level == "strict" else "none"
        raise UsageError(
            f"expected judge.sandbox {level} to be within reach, got no {' and no '.join(missing)} on this machine; "
            f"evoforge doctor says how to get them, judge.sandbox: {lower} goes without"
        )
