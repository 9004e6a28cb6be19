"""Ctrl-C and SIGTERM that cannot get lost."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

__all__ = ["Terminated", "stoppable"]

_AGAIN_S = 0.5


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP, treated as Ctrl-C is: child processes end, and the store says how the campaign stopped."""


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Ends what is inside by KeyboardInterrupt (SIGINT) or `Terminated` (SIGTERM, SIGHUP), raised until it is heeded.

    Python raises wherever the main thread happens to stand. Inside a callback of the garbage collector, which
    SQLAlchemy and the import system have, or under somebody's bare `except`, the exception vanishes and the work
    goes on: so fared one Ctrl-C of eight while libraries were loaded. Hence it is raised again every half second
    for as long as nothing is on its way out because of it. A signal that is ignored stays so (`nohup`, `&`).
    """
    if threading.current_thread() is not threading.main_thread():  # only there may handlers be set
        yield
        return
    asked: type[KeyboardInterrupt] = KeyboardInterrupt

    def stop(number: int, _: object) -> None:
        nonlocal asked
        asked = KeyboardInterrupt if number == signal.SIGINT else Terminated
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S, _AGAIN_S)
        raise asked

    def again(*_: object) -> None:
        if not _on_its_way(sys.exc_info()[1]):
            raise asked

    def unraisable(lost: UnraisableHookArgs) -> None:
        if not isinstance(lost.exc_value, KeyboardInterrupt):
            reported(lost)

    reported, sys.unraisablehook = sys.unraisablehook, unraisable
    before = {signal.SIGALRM: signal.signal(signal.SIGALRM, again)}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            before[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
        sys.unraisablehook = reported


def _on_its_way(error: BaseException | None) -> bool:
    """Whether an interrupt, or what followed from one, is being handled right now."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None
