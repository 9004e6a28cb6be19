"""How long at least one compiler, kernel, reference or baseline process was at work."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

__all__ = ["BusyClock"]


class BusyClock:
    """The union of the intervals spent inside `working`, over all threads.

    What a campaign prints as the share of wall time in which nothing ran is one minus this.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth = 0
        self._since = 0.0
        self._total_s = 0.0

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Marks the body as time in which a process works for the judge."""
        with self._lock:
            if self._depth == 0:
                self._since = time.perf_counter()
            self._depth += 1
        try:
            yield
        finally:
            with self._lock:
                self._depth -= 1
                if self._depth == 0:
                    self._total_s += time.perf_counter() - self._since

    @property
    def seconds(self) -> float:
        """Busy seconds so far, an interval under way included."""
        with self._lock:
            running = time.perf_counter() - self._since if self._depth else 0.0
            return self._total_s + running
