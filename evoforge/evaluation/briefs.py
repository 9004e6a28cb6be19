"""Whether a kernel skips calls or keeps answers: what the brief batches of several fresh processes say together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from evoforge.evaluation.priority import can_prioritise
from evoforge.evaluation.timing import BRIEF_LOG2, Stopwatch, agreed_gap

__all__ = ["Briefs"]

_DOUBTED_PROCESSES = 9  # at least, where one of them is suspect
_MOST_PROCESSES = 25
_UNEVEN = 1.5


class Briefs:
    """The stopwatches of one kernel's processes, of which each was asked brief batches first.

    In one process noise can look like skipped calls, or hide them: several count.

    Args:
        threads: the kernel starts threads.
        suspect: it was found to skip calls before, so that as many processes are asked as where one of them is suspect.
    """

    def __init__(self, *, threads: bool, suspect: bool = False) -> None:
        self._threads = threads
        self._least = _DOUBTED_PROCESSES if suspect else 1
        self._watched: list[list[Stopwatch]] = []

    def add(self, watches: Iterable[Stopwatch]) -> None:
        """One more process: its stopwatches, one per workload."""
        self._watched.append(list(watches))

    @property
    def _parting(self) -> bool:
        """Whether threads may take long to part at first (`agreed_gap`): without priority, and where a call of one
        process takes far longer than one of another (as where every call starts threads anew)."""
        return self._threads and (not can_prioritise() or any(map(_is_uneven, zip(*self._watched, strict=True))))

    @property
    def undecided(self) -> bool:
        """Whether more processes may show something else than those that there are."""
        if len(self._watched) < self._least:
            return True
        if self._gap() < -BRIEF_LOG2:
            return len(self._watched) < _MOST_PROCESSES
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


def _is_uneven(watches: Sequence[Stopwatch]) -> bool:
    return max(watch.work_s for watch in watches) > _UNEVEN * min(watch.work_s for watch in watches)
