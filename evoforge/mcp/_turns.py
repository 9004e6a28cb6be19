"""Calls of the tools, one after the other in the main thread: the one that a signal stops."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

__all__ = ["Turns"]


class _Unheard(KeyboardInterrupt):
    """Nobody is left to hear what the call comes to; ends it as Ctrl-C does."""


class Turns:
    """A device measures one kernel at a time, so calls wait for one another.

    Ctrl-C and SIGTERM end a call in the thread that makes it, as they end a command, whatever other threads do. That is
    the main one; the protocol has a thread of its own.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any], bool] | None] = SimpleQueue()
        self._over = False
        self._stoppable = False

    def submit(self, call: Callable[[], dict[str, Any]], *, kept: bool) -> Future[dict[str, Any]]:
        """Makes a call once it is its turn. What it comes to is worth something without its caller, if `kept`."""
        future: Future[dict[str, Any]] = Future()
        self._calls.put((future, call, kept))
        return future

    def serve(self, talk: Callable[[], None]) -> None:
        """Runs `talk` and makes the calls that it submits, until it ends; a call that is not kept ends with it.

        Raises:
            KeyboardInterrupt: a signal, in the middle of a call or between two.
        """
        failed: list[BaseException] = []

        def run() -> None:
            try:
                talk()
            except BaseException as error:  # raised in the main thread below
                failed.append(error)
            self._over = True
            self._calls.put(None)
            if self._stoppable:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

        with _heeded(self._stop), contextlib.suppress(_Unheard):
            threading.Thread(target=run, name="evoforge-mcp", daemon=True).start()
            while (task := self._calls.get()) is not None and not self._over:
                self._make(*task)
        if failed:
            raise failed[0]

    def _make(self, future: Future[Any], call: Callable[[], Any], kept: bool) -> None:
        if not future.set_running_or_notify_cancel():
            return
        self._stoppable = not kept
        try:
            future.set_result(call())
        except Exception as error:  # its reader raises it
            future.set_exception(error)
        finally:
            self._stoppable = False

    def _stop(self) -> None:
        if self._stoppable and self._over:
            raise _Unheard


@contextlib.contextmanager
def _heeded(stop: Callable[[], None]) -> Iterator[None]:
    """Has SIGUSR1 call `stop` in the main thread."""
    if threading.current_thread() is not threading.main_thread():  # only there may handlers be set
        yield
        return
    before = signal.signal(signal.SIGUSR1, lambda *_: stop())
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)
