"""What a campaign may spend, and when it has."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

__all__ = ["Clock"]


@dataclass
class Clock:
    """Evaluations and wall time against their limits; `spent_s` is what earlier runs took.

    A replay runs on recorded time: `recorded` is then what the served evaluations took, and the
    wall does not count. `reserve_s` is kept for what follows the search (the last confirmation).
    """

    evals: int | None
    budget_s: float | None
    spent_s: float = 0.0
    reserve_s: float = 0.0
    replay: bool = False
    recorded_s: float = 0.0
    _started: float = field(default_factory=time.monotonic)

    @property
    def elapsed_s(self) -> float:
        return self.spent_s + (self.recorded_s if self.replay else time.monotonic() - self._started)

    def stop_reason(self, evaluations: int) -> str:
        """ "evals" or "minutes" when that limit is reached, else empty."""
        if self.evals is not None and evaluations >= self.evals:
            return "evals"
        if self.budget_s is not None and self.elapsed_s >= self.budget_s - self.reserve_s:
            return "minutes"
        return ""
