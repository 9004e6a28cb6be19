"""What a campaign may spend, and when it has."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

from evoforge.core import Evaluation, Kind

__all__ = ["Clock"]

_RACE_S = 20.0
_RACE_SHARE = 1 / 15
_RACE_OF_MEASURED, _LEAST_RACE_S = 1 / 4, 5.0
_LONG = 6000  # evaluations: the map of a search that goes on for longer is drawn as soon as that of one of so many
_MEASURED_SHARE = 0.7  # of the wall time that evaluations take; the rest is start-up and building ahead


@dataclass
class Clock:
    """Evaluations and wall time against their limits; `spent_s` is what earlier runs took.

    `recorded_s` sums what the evaluations took. A replay runs on it, and the wall does not count.
    `ends_at`, where it is set, is the one stop rule: exactly so many evaluations, or (infinity) none.
    `confirms`, where it is set, is how many confirmations there are to be had.
    `reserve_s` is kept for what follows the search (the last confirmation), beside `race_s`.
    """

    evals: int | None
    budget_s: float | None
    spent_s: float = 0.0
    reserve_s: float = 0.0
    replay: bool = False
    ends_at: float | None = None
    confirms: int | None = None
    recorded_s: float = 0.0
    confirmed: int = 0
    _started: float = field(default_factory=time.monotonic)

    @property
    def elapsed_s(self) -> float:
        return self.spent_s + (self.recorded_s if self.replay else time.monotonic() - self._started)

    @property
    def until(self) -> float:
        """When the time is up, as `time.monotonic`; infinity without a limit, and in a replay."""
        return math.inf if self.budget_s is None or self.replay else self._started + self.budget_s - self.spent_s

    @property
    def race_s(self) -> float:
        """Seconds for the race of the best at the end: at most 20, and a fifteenth of the budget.

        Without a limit of time a quarter of what was measured, 5 at least.
        """
        if self.budget_s is None:
            return min(_RACE_S, max(_LEAST_RACE_S, _RACE_OF_MEASURED * self.recorded_s))
        return min(_RACE_S, _RACE_SHARE * self.budget_s)

    def stop_reason(self, evaluations: int) -> str:
        """The limit that is reached, evals or minutes; else empty."""
        if self.ends_at is not None:
            return "evals" if evaluations >= self.ends_at else ""
        if self.evals is not None and evaluations >= self.evals:
            return "evals"
        if self.budget_s is not None and self.elapsed_s >= self.budget_s - self.reserve_s - self.race_s:
            return "minutes"
        return ""

    def note(self, evaluation: Evaluation) -> None:
        """Books what an evaluation took."""
        self.recorded_s += sum(evaluation.seconds.values())
        self.confirmed += evaluation.kind is Kind.CONFIRM

    @property
    def in_time(self) -> bool:
        """Whether there is time for another confirmation of what is being confirmed; in a replay, whether there was."""
        if self.confirms is not None:
            return self.confirmed < self.confirms
        return self.budget_s is None or self.replay or self.elapsed_s < self.budget_s

    def may_doubt(self, evaluations: int) -> bool:
        """Whether there is room to measure once more what is believed; in a replay, whether that was done.

        Such a measurement counts as no evaluation, so a campaign that ends by them may have room for it, or not.
        """
        if self.confirms is not None:
            return self.confirmed < self.confirms
        return not self.stop_reason(evaluations)

    def progress(self, evaluations: int) -> float:
        """How much of the budget is used, in [0, 1]; without limits, and at the least, of `_LONG` evaluations.

        It steers the search, so it is made of what is recorded and not of the wall: a replay decides
        as the campaign did.
        """
        shares = [evaluations / _LONG]
        if self.evals:
            shares.append(evaluations / self.evals)
        if self.budget_s:
            shares.append(self.recorded_s / (_MEASURED_SHARE * self.budget_s))
        return min(max(shares), 1.0)
