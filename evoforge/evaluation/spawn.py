"""Starts and stops the processes that do not outlive evoforge.

They ask the kernel to be killed when their parent dies (PR_SET_PDEATHSIG). To the kernel that parent
is the *thread* that spawned them, so one thread spawns them all and lives as long as evoforge does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

__all__ = ["kill_group", "signal_group", "spawn"]

_spawner = ThreadPoolExecutor(1, "evoforge-spawn")


def _renew() -> None:
    global _spawner
    _spawner = ThreadPoolExecutor(1, "evoforge-spawn")


os.register_at_fork(after_in_child=_renew)


def spawn(command: Sequence[str | Path], **options: Any) -> subprocess.Popen[bytes]:
    """`subprocess.Popen` in a session, and so in a process group, of its own.

    Raises:
        OSError: it cannot be started.
    """

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, start_new_session=True, **options)

    return _spawner.submit(start).result()


def signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Sends a signal to everything in the group of a spawned process; nothing if it is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kills the group, stopped or not, and waits for its leader."""
    signal_group(process, signal.SIGKILL)
    process.wait()
