"""Threads in which models are asked."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import Any, TypeVar

__all__ = ["Callers"]

_AT_ONCE_S = 0.1
T = TypeVar("T")


class Callers:
    """Makes up to `at_once` calls side by side.

    A pool of threads whose calls nobody has to wait for: the end of the process leaves those that are being made,
    where that of a `ThreadPoolExecutor` joins them.
    """

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._left: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._open: set[Future[Any]] = set()
        self._closed = False

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Makes a call once a thread is free."""
        future: Future[T] = Future()
        self._open.add(future)
        future.add_done_callback(self._open.discard)
        self._left.put((future, call))
        if len(self._threads) < self._at_once:
            thread = threading.Thread(target=self._work, name=f"evoforge-model-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return future

    def close(self, *, cancel: bool, waiting: Callable[[], object]) -> None:
        """Waits for the calls that are being made and, unless they are to be cancelled, for the others.

        Says so by `waiting`. Where an exception ends the wait, those that are left are waited for no more: closing
        again does nothing.
        """
        if self._closed:
            return
        self._closed = True
        for future in self._open.copy() if cancel else ():
            future.cancel()
        for _ in self._threads:
            self._left.put(None)
        if wait(self._open.copy(), _AT_ONCE_S).not_done:
            waiting()
            wait(self._open.copy())

    def _work(self) -> None:
        while (task := self._left.get()) is not None:
            future, call = task
            if not future.set_running_or_notify_cancel():
                continue
            try:
                found = call()
            except BaseException as error:  # its reader raises it
                future.set_exception(error)
            else:
                future.set_result(found)
            del task, future, call
