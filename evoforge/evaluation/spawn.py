"""Starts and stops the processes that do not outlive evoforge.

They ask the kernel to be killed when their parent dies (PR_SET_PDEATHSIG). To the kernel that parent
is the *thread* that spawned them, so one thread spawns them all and lives as long as evoforge does.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
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


def family(pid: int) -> Iterator[int]:
    """A process and its descendants: what is known may only wait for the one in a namespace of its own.

    Raises:
        OSError: it is gone, or the system does not say.
    """
    yield pid
    for thread in Path(f"/proc/{pid}/task").iterdir():
        for child in (thread / "children").read_text().split():
            yield from family(int(child))


def processor_seconds(pid: int) -> float:
    """What the system has booked on all threads of a process and of its descendants; inf if it does not say."""
    try:
        return sum(time.clock_gettime(~one << 3 | 2) for one in family(pid))  # see clock_getcpuclockid(3)
    except OSError:
        return math.inf


def waiting_seconds(pid: int) -> float:
    """What those threads have waited for a processor that others had; 0 if the system does not say."""
    try:
        tasks = [task for one in family(pid) for task in Path(f"/proc/{one}/task").iterdir()]
        return sum(int((task / "schedstat").read_text().split()[1]) for task in tasks) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
