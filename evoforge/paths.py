"""Where the data folders are: the only file that knows.

Looked up in this order: an explicit path (environment variable ``EVOFORGE_DATA``), the data inside
an installed wheel, the checkout this package lies in.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from evoforge.errors import UsageError

__all__ = ["cache_dir", "data_dir", "include_dir", "native_dir", "unwritable"]

_PACKAGE = Path(__file__).resolve().parent


def data_dir(name: str) -> Path:
    """The folder ``templates``, ``meta_prompts`` or ``experiments``.

    Raises:
        UsageError: none of the three places has it.
    """
    explicit = os.environ.get("EVOFORGE_DATA")
    places = [Path(explicit)] if explicit else [_PACKAGE / "_data", _PACKAGE.parent]
    for place in places:
        if (place / name).is_dir():
            return place / name
    raise UsageError(
        f"expected a folder {name!r} in {' or '.join(str(place) for place in places)}, found none; "
        "reinstall evoforge, or set EVOFORGE_DATA to a checkout"
    )


def include_dir() -> Path:
    """The folder with ``evoforge.h``."""
    return _PACKAGE / "include"


def native_dir() -> Path:
    """The folder with the C sources of the runner, the checker and the probes."""
    return _PACKAGE / "native"


def cache_dir() -> Path:
    """Built runners, precompiled headers, objects and measured ceilings; safe to delete.

    ``EVOFORGE_CACHE``, else ``$XDG_CACHE_HOME/evoforge``, else ``~/.cache/evoforge``.

    Raises:
        UsageError: none of them is known.
    """
    explicit = os.environ.get("EVOFORGE_CACHE")
    if explicit:
        return Path(explicit)
    base = os.environ.get("XDG_CACHE_HOME")
    if not base:
        try:
            base = str(Path.home() / ".cache")
        except RuntimeError:  # a container's account; what others may write to is no place to run from
            raise UsageError("expected a home folder for the cache, found none; set EVOFORGE_CACHE") from None
    return Path(base) / "evoforge"


def unwritable(folder: Path) -> str:
    """Why no file can be made below `folder`, or below its nearest ancestor that exists; empty if one can."""
    near = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    if not near.is_dir():
        return f"expected a folder at {near}, found a file"
    try:
        tempfile.TemporaryFile(dir=near).close()  # permissions alone do not tell: root, /proc
    except OSError as error:
        return f"cannot write in {near}: {error.strerror}"
    return ""
