"""Time from outside: batches, paired blocks and the statistics of their ratios.

time = (T(n) − T₀) / n, with T₀ the median round trip of an empty batch, n random and the batch 10 ms
or longer. The slope (T(2n) − T(n)) / n is not used: a kernel that can read n dawdles in the short
batch and looks six times faster than it is. Two checks of their own: T(2n)/2n agrees with T(n)/n, and
a batch so brief that every call has inputs and outputs of its own, all of them checked, does not take
longer per call than a long one, of which only the end can be checked.

No pause is needed between the processes that take turns: whoever has answered is stopped (SIGSTOP), so
an OpenMP pool that still spins slows nobody down. (Left running, it makes the next batch 2.4× slower.)
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from evoforge.core import Signature

__all__ = [
    "BRIEF_LOG2",
    "CUT_S",
    "Batches",
    "Brief",
    "Stopwatch",
    "agreed_gap",
    "cold_size",
    "paired_block",
    "ring_size",
    "significantly_below",
    "t_half_width",
    "t_quantile",
]

BRIEF_LOG2 = 0.32
"""25%, asked of the median over several processes: honest medians were seen within 5% (experiments/LOG.md)."""

CUT_S = 0.1
"""What a brief batch may take; 64 calls of a slow kernel would take a minute and tell nothing more."""

_BATCH_S = 0.010
_COLD_CALL_S = 6e-6  # what a call may take longer where it meets every page for the first time: up to 4 were seen
_SCATTERED = 1.5  # of what writing to so many places is known to cost
_UNSURE_S = 350e-6  # what neighbours on the same caches may cost a brief batch; at most 1.5 times what it should take
_TOO_BRIEF_S = 60e-6  # less is the noise of two commands
_MAX_CALLS = 1 << 20
_NET_FLOOR = 0.05
_EMPTIES = 7
_AGAIN_TRIES = 3
_AGREE_LOG2 = 0.32  # 25%: far above noise that strikes six times in a row, far below what dawdling must gain
_AGREE_TRIES = 6
_PARTING_TRIES = 12
_RING_SETS = 64
_RING_BYTES = 1 << 30
_COLD_BYTES = 256 << 20
_COLD_SETS = 1024
_COLD_TENSORS = 8192  # a process may have 65530 mappings, and a tensor takes three


class Brief(NamedTuple):
    """A batch in which every call has inputs and outputs of its own.

    `seconds` is what passed, `busy_s` the processor time that the system booked on all threads meanwhile, both less
    what a batch without calls takes. A kernel has worked no longer than either: the rest is the system's.
    `scattered_s` is what an honest kernel may pay for writing to so many places. `cut`: there might have been more
    calls, but the first one of the process took so long that these were to take `CUT_S`.
    """

    calls: int
    seconds: float
    scattered_s: float
    busy_s: float = math.inf
    cut: bool = False


class Batches(Protocol):
    """Something that runs n calls and says how many seconds that took, by the judge's clock.

    `most` is the most calls that it takes at once. `brief` takes a batch in which every call has inputs and outputs
    of its own, all of them checked, and finds scratch memory wiped; or the same once more (`again`). None
    where there is no such thing. `empty` takes a batch without calls; `again`, right before another batch, inf where
    every batch has a process of its own. `busy_s` is the processor time booked on its threads so far, inf if nobody
    knows.
    """

    @property
    def most(self) -> int: ...

    @property
    def busy_s(self) -> float: ...

    def brief(self, *, again: bool = False) -> Brief | None: ...

    def batch(self, n: int, expected_s: float) -> float: ...

    def empty(self, *, again: bool = False) -> float: ...


class Stopwatch:
    """Times one side: finds T₀ and a fitting n, then gives milliseconds per call, batch by batch."""

    def __init__(self, side: Batches, rng: np.random.Generator) -> None:
        self._side = side
        self._rng = rng
        self._overhead_s = 0.0
        self._call_s = 0.0
        self._works_s: list[float] = []
        self._briefs: list[Brief] = []

    @property
    def call_s(self) -> float:
        """The latest estimate of one call, in seconds."""
        return self._call_s

    @property
    def work_s(self) -> float:
        """What a call has worked, in the median over all `batch_ms`: no longer than it took, nor than its threads ran.

        Of all: which batch is the last, a kernel could count, and be honest in that one.
        """
        return statistics.median(self._works_s) if self._works_s else self._call_s

    def take_brief(self) -> None:
        """Takes the brief batches for `gaps`.

        To be the first thing that is asked of a process: what it has seen it may know, wherever it keeps it.
        """
        first = self._side.brief()
        if first is None:
            return
        self._briefs = [first]
        if again := list(self._briefs_again(first)):
            self._briefs.append(min(again, key=_worked_s))

    def _briefs_again(self, first: Brief) -> Iterator[Brief]:
        """Up to three, until one takes no longer than the first: nothing came between that one.

        None of two calls on large tensors: they find no cache warm the second time either.
        """
        for _ in range(_AGAIN_TRIES if first.calls > 2 else 0):
            again = self._side.brief(again=True)
            if again is None:
                return
            yield again
            if _worked_s(again) <= _worked_s(first):
                return

    @property
    def misled(self) -> bool:
        """Whether a brief batch was cut although calls are quick: the first one of the process was slow.

        Too brief a batch shows nothing; another process has to take a whole one. Known by the batch itself, and better
        once `calibrate` has found out what a call takes.
        """
        return any(
            self._is_too_brief(brief, self._call_s or brief.seconds / brief.calls, CUT_S / 4) for brief in self._briefs
        )

    @staticmethod
    def _is_too_brief(brief: Brief, call_s: float, least_s: float) -> bool:
        return brief.cut and call_s * brief.calls < least_s

    def calibrate(self) -> None:
        """Measures T₀, warms up and estimates how long a call takes."""
        self._overhead_s = statistics.median(self._side.empty() for _ in range(_EMPTIES))
        self._call_s = self._net(1)
        n = 1
        while True:
            spent = self._net(n)
            self._call_s = max(spent / n, 1e-9)
            if spent >= _BATCH_S / 4 or n >= self._most:
                return
            n = min(self._most, max(2 * n, min(16 * n, math.ceil(_BATCH_S / 3 / self._call_s))))

    def batch_ms(self) -> float:
        """Milliseconds per call of one batch of at least 10 ms and a random number of calls."""
        spent, n, busy_s = 0.0, 1, math.inf
        for _ in range(4):
            n, before_s = self._calls(), self._side.busy_s
            spent = self._net(n)
            self._call_s = max(spent / n, 1e-9)
            busy_s = max((self._side.busy_s - before_s) / n, 1e-9) if math.isfinite(before_s) else math.inf
            if spent >= _BATCH_S or n >= self._most:
                break
        self._works_s.append(min(self._call_s, busy_s))
        return max(spent / n * 1e3, 1e-9)

    def agrees(self, *, parting: bool = False) -> bool:
        """Whether twice the calls take twice the time, where so many are taken at once.

        Noise gets several chances, a cheat none: noise errs in both directions, a kernel that is slower,
        or faster, in long batches errs in one.

        Args:
            parting: as for `agreed_gap`. A batch that starts threads may begin with 10 ms of waiting for a core, and
                longer ones look faster most of the time.
        """
        gaps: list[float] = []
        for _ in range(_PARTING_TRIES if parting else _AGREE_TRIES):
            n = self._calls()
            if 2 * n > self._most:
                return True
            single, double = self._net(n) / n, self._net(2 * n) / (2 * n)
            gaps.append(math.log2(double / single))
            if abs(gaps[-1]) <= _AGREE_LOG2 or gaps[-1] * gaps[0] < 0:
                return True
        return False

    def gaps(self, call_s: float | None = None) -> list[float]:
        """log2 of `work_s` (or `call_s`) over that in each brief batch; well below 0, calls were skipped.

        Of the brief batches that `take_brief` took the first met nothing that it had seen, the second, where there
        is one, the caches that the first had warmed. What waking threads and writing to so many places cost
        is taken off, and 0 is returned where that may be all there is: so a kernel of microseconds, or one
        that does little but write, is not suspected, and not seen through either. A batch that was cut for a slow
        first call, although calls are quick, is suspect.
        """
        return [self._gap_of(call_s or self.work_s, found) for found in self._briefs]

    def _gap_of(self, call_s: float, brief: Brief) -> float:
        if self._is_too_brief(brief, call_s, CUT_S / 8):  # and quicker than when `misled` was asked
            return -1.0
        several = brief.calls > 2
        scattered_s = brief.scattered_s if several else 0.0
        # Less than half of what long batches say is no work left out, but a clock that ticks too seldom.
        busy_s = brief.busy_s if brief.busy_s >= call_s * brief.calls / 2 else math.inf
        spent = min(brief.seconds, busy_s)
        spent -= min(_UNSURE_S, 1.5 * call_s * brief.calls)
        allowed_s = max(_TOO_BRIEF_S, _COLD_CALL_S * brief.calls + _SCATTERED * scattered_s if several else 0.0)
        if spent - call_s * brief.calls <= allowed_s:
            return 0.0
        return math.log2(call_s * brief.calls / (spent - scattered_s))

    @property
    def _most(self) -> int:
        return min(_MAX_CALLS, self._side.most)

    def _calls(self) -> int:
        wanted = _BATCH_S / self._call_s * self._rng.uniform(1.05, 1.4)
        return int(min(self._most, max(1, math.ceil(wanted))))

    def _net(self, n: int) -> float:
        """Seconds of n calls. T₀ may have been taken in a bad moment: it never takes all of them away.

        Nor does it take away more than a batch without calls takes now: a kernel that makes those long while T₀ is
        measured, by what it leaves to be wiped, gains nothing.
        """
        overhead_s = min(self._overhead_s, self._side.empty(again=True))
        spent = self._side.batch(n, n * self._call_s)
        return max(spent - overhead_s, _NET_FLOOR * spent, 1e-9)


def _worked_s(brief: Brief) -> float:
    return min(brief.seconds, brief.busy_s)


def agreed_gap(watches: Sequence[Stopwatch], *, parting: bool) -> float:
    """The gap of the worst brief batch, in the median of the fresh processes that were watched.

    Args:
        parting: threads that share a core at first take long to part, so that most brief batches may be disturbed.
            The best process of up to three is enough then, the second best of more: no noise makes a brief batch
            short. Which process that is, who cheats could choose: a call takes what it takes in the median of all.
    """
    usual_s = statistics.median(watch.work_s for watch in watches)
    worst = 0.0
    for gaps in zip(*(watch.gaps(usual_s if parting else None) for watch in watches), strict=True):
        worst = min(worst, sorted(gaps)[-1 - (len(gaps) > 3)] if parting else statistics.median(gaps))
    return worst


def paired_block(sides: Mapping[str, Stopwatch], rng: np.random.Generator) -> dict[str, float]:
    """Milliseconds per call of one batch of every side, in random order."""
    return {str(name): sides[str(name)].batch_ms() for name in rng.permutation(sorted(sides))}


def ring_size(signature: Signature, l2_total_bytes: int) -> int:
    """How many input sets a warm measurement rotates through: eight times the L2, at least 3.

    At most 64, and no more than 1 GiB in all. Three, so that an output buffer, of which there are two,
    never holds the answer for the set that comes next.
    """
    size = max(signature.input_bytes, 1)
    return max(3, min(math.ceil(8 * l2_total_bytes / size), _RING_SETS, _RING_BYTES // size))


def cold_size(signature: Signature) -> int | None:
    """How many input sets make a ring of 256 MiB.

    None where that is more than 1024 sets, or 8192 tensors: what is called cold must be.
    """
    count = math.ceil(_COLD_BYTES / max(signature.input_bytes, 1))
    return count if count <= min(_COLD_SETS, _COLD_TENSORS // max(len(signature.inputs), 1)) else None


def t_quantile(degrees: int, confidence: float) -> float:
    """Student's t for a two-sided interval."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.5 + confidence / 2))


def t_half_width(values: Sequence[float], confidence: float = 0.95) -> float:
    """Half the width of the two-sided Student-t interval of the mean; inf for fewer than two values."""
    if len(values) < 2:
        return math.inf
    return t_quantile(len(values) - 1, confidence) * statistics.stdev(values) / math.sqrt(len(values))


def significantly_below(values: Sequence[float], threshold: float) -> bool:
    """One-sided Wilcoxon signed-rank test at 0.1, exact: are the values below `threshold`?

    Four values below it give p = 1/16, so four paired blocks are enough to prune. Ties in rank count
    by their order, zeros are left out. (Wilcoxon 1945; the level is Optuna's WilcoxonPruner's.)
    """
    gaps = sorted((value - threshold for value in values if value != threshold), key=abs)
    if len(gaps) < 4:
        return False
    above = sum(rank for rank, gap in enumerate(gaps, 1) if gap > 0)
    # How many of the 2^n sign patterns have a rank sum of at most `above`.
    ways: list[int] = [1]
    for rank in range(1, len(gaps) + 1):
        longer = ways + [0] * rank
        for at, count in enumerate(ways):
            longer[at + rank] += count
        ways = longer
    return bool(sum(ways[: above + 1]) < 0.1 * 2 ** len(gaps))
