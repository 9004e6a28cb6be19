"""What a campaign tells its observers while it runs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["Event", "Narrator", "Observer"]


@dataclass(frozen=True)
class Event:
    """`kind` is one of phase, notice, baseline, first, evaluation, placement, best, progress, useless (a model's reply)
    and meta_prompt (a new one)."""

    kind: str
    at_s: float
    data: Mapping[str, Any] = field(default_factory=dict)


class Observer(Protocol):
    """Anything that wants to see a campaign's events; called from the coordinator's thread."""

    def on_event(self, event: Event) -> None: ...


class Narrator:
    """Stamps events with the seconds since the start of this run and hands them to the observer."""

    def __init__(self, observer: Observer | None) -> None:
        self._observer = observer
        self._started = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._started

    def tell(self, kind: str, **data: Any) -> None:
        if self._observer is not None:
            self._observer.on_event(Event(kind, self.elapsed_s, data))
