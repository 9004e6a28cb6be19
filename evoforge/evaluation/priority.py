"""Real-time priority for what is being measured, where the system allows it.

Two OpenMP threads that meet at a barrier wait for whichever of them shares its core with somebody
else's work: on a busy machine a call of 30 µs takes 8 ms. Ahead of everything else (SCHED_FIFO) the
same call takes 32 µs. It needs root, CAP_SYS_NICE or a limit on RTPRIO; without, nothing changes but the
noise. Judge, baselines and kernels all get it, so no side gains.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from evoforge.core import Target
from evoforge.evaluation.spawn import family
from evoforge.evaluation.targets import device_lock

__all__ = ["can_prioritise", "measuring", "prioritise"]

_MEASURED, _JUDGE = 1, 2


def can_prioritise() -> bool:
    """Whether this process may run ahead of others."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(_JUDGE))
        os.sched_setscheduler(0, *before)
    except OSError:
        return False
    return True


def prioritise(pid: int) -> None:
    """Puts every thread of a process that is measured, and of what it started, ahead of others; heirs inherit it."""
    with contextlib.suppress(OSError):
        for one in family(pid):
            for thread in Path(f"/proc/{one}/task").iterdir():
                os.sched_setscheduler(int(thread.name), os.SCHED_FIFO, os.sched_param(_MEASURED))


@contextlib.contextmanager
def measuring(target: Target) -> Iterator[None]:
    """The device is this thread's alone, and the thread that holds the clock comes before what it times."""
    with device_lock(target):
        before = os.sched_getscheduler(0), os.sched_getparam(0)
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(_JUDGE))
        except OSError:
            yield
            return
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                os.sched_setscheduler(0, *before)
