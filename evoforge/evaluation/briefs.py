"""Whether a kernel skips calls or keeps answers: what the brief batches of several fresh processes say together."""

from __future__ import annotations

from collections.abc import Iterable

from evoforge.evaluation.timing import BRIEF_LOG2, Stopwatch, agreed_gap

__all__ = ["Briefs"]

_DOUBTED_PROCESSES = 9  # at least, where one of them is suspect
_MOST_PROCESSES = 25
_PARTING_PROCESSES = 15


class Briefs:
    """The stopwatches of one kernel's processes, of which each was asked brief batches first.

    In one process noise can look like skipped calls, or hide them: several count.

    Args:
        parting: the kernel starts threads that may take long to part at first (`agreed_gap`).
    """

    def __init__(self, *, parting: bool) -> None:
        self._parting = parting
        self._watched: list[list[Stopwatch]] = []

    def add(self, watches: Iterable[Stopwatch]) -> None:
        """One more process: its stopwatches, one per workload."""
        self._watched.append(list(watches))

    @property
    def undecided(self) -> bool:
        """Whether more processes may show something else than those that there are, of which there is one at least."""
        if self._gap() < -BRIEF_LOG2:
            return len(self._watched) < (_PARTING_PROCESSES if self._parting else _MOST_PROCESSES)
        suspect = any(gap < -BRIEF_LOG2 for watches in self._watched for watch in watches for gap in watch.gaps())
        return suspect and not self._parting and len(self._watched) < _DOUBTED_PROCESSES

    @property
    def reason(self) -> str:
        """Why the kernel is taken to skip calls or to keep answers; empty when it does not."""
        gap = self._gap()
        if gap >= -BRIEF_LOG2:
            return ""
        return f"a call takes {2**-gap:.2g} times as long where every output is checked and nothing can have been kept"

    def _gap(self) -> float:
        """The worst workload's."""
        return min(agreed_gap(watches, parting=self._parting) for watches in zip(*self._watched, strict=True))
