"""What came of a build, and the folder that keeps it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from evoforge.core import Status

__all__ = ["Built", "find", "keep", "prune"]

_KEPT_BUILDS = 6000


@dataclass(frozen=True)
class Built:
    """What came of one build. The paths are None unless `status` is CORRECT (it built).

    `log` is what the compiler said, at most about 4 kB, free of paths of this machine. `text_hash`
    is the sha256 of the object's code: equal for texts that compile to the same thing. `stateful` says
    why its calls may remember earlier ones; empty if they cannot (see `ElfObject.memory`).
    """

    status: Status
    reason: str = ""
    object_path: Path | None = None
    library_path: Path | None = None
    log: str = ""
    seconds: float = 0.0
    text_hash: str = ""
    stateful: str = ""


def find(home: Path) -> Built | None:
    """The build that is kept in `home`."""
    try:
        row = json.loads((home / "built.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    built = Built(
        Status(row["status"]), row["reason"], log=row["log"], text_hash=row["text_hash"], stateful=row["stateful"]
    )
    if built.status is not Status.CORRECT:
        return built
    with contextlib.suppress(OSError):
        os.utime(home)  # what is in use is not the oldest
    return replace(built, object_path=home / "kernel.o", library_path=home / "kernel.so")


def keep(built: Built, work: Path, home: Path) -> Built:
    """Moves a finished build to its place; who comes second takes what is there."""
    for path in list(work.iterdir()):
        if path.name not in ("kernel.o", "kernel.so") or built.status is not Status.CORRECT:
            path.unlink()
    row = {"status": built.status, "reason": built.reason, "log": built.log, "text_hash": built.text_hash}
    row["stateful"] = built.stateful
    (work / "built.json").write_text(json.dumps(row), encoding="utf-8")
    with contextlib.suppress(OSError):
        work.rename(home)
    return find(home) or built


def prune(objects: Path, kept: int = _KEPT_BUILDS) -> None:
    """Keeps the builds that were made or found last, so that a search of weeks does not fill the disk."""
    homes = [home for home in objects.glob("[0-9a-f][0-9a-f]/*") if re.fullmatch(r"[0-9a-f]{64}", home.name)]
    if len(homes) <= kept:
        return
    with contextlib.suppress(OSError):
        homes.sort(key=lambda home: home.stat().st_mtime)
    for home in homes[: len(homes) - kept]:
        shutil.rmtree(home, ignore_errors=True)
