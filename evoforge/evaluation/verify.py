"""One kernel on one workload: is it right, and does it keep the rules?"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from evoforge.core import Status, Tolerance
from evoforge.evaluation.check import Check, Samples, check_outputs, damaged_slack, poison, poison_slack
from evoforge.evaluation.material import Known, Material
from evoforge.evaluation.runner import POISON, KernelFault, Runner
from evoforge.evaluation.shared import SharedTensors, exchanged, hidden
from evoforge.evaluation.timing import CUT_S, Brief

__all__ = ["SLOW_SCATTER", "FreshBatches", "SampledBatches", "Verified", "WrongOutput", "verify", "verify_later"]

SLOW_SCATTER = 6e9
"""Bytes per second that one thread writes to pages that no cache holds, where nothing better is known: 4e9 to 7e9 were
measured on a machine where it is slow."""

_LAST_CACHE_BYTES = 64 << 20  # a larger ring comes from memory in long batches, too
_IDLE = 3  # batches without a call, of which the median is taken off
_IDLE_S = 1e-3  # and no more than this: what a kernel makes of them is its own affair
_LEAST_CALLS = 3  # of a brief batch that is cut
_BUSY_S, _MORE_CALLS = 0.25, 4  # calls that a busy moment may make slow, and how many more are made
_STRANGE = 1 / 8  # of batches, how many are preceded by one of data that no timed batch has
_LATER, _LATER_S = (200, 20_000), 0.5  # calls before one that is verified, and how long they may take


@dataclass(frozen=True)
class Verified:
    """What verification found in a kernel that passed it.

    `cut_short_s` is how long the calls took at best that ended it early, 0 where all was verified.
    """

    max_error: float
    deterministic: bool
    cut_short_s: float = 0.0


def verify(
    runner: Runner, known: Sequence[Known], outputs: tuple[SharedTensors, SharedTensors], tolerance: Tolerance, *,
    limit_s: float, repeats: int = 2, enough_s: float = math.inf,
) -> Verified:  # fmt: skip
    """Runs every known set once, the first one `repeats` times over poison that differs each time, the others over
    earlier answers.

    Where both of the first two calls take longer than `enough_s` and are right, and so do a few more where they are
    short, no other is made: some may have met a busy moment, or threads that were still starting. What threads waited
    for processors that others had does not count: nobody is slow for it. `runner` must have been made with the sets of
    `known`, in this order.

    Raises:
        KernelFault: WRONG, OUT_OF_BOUNDS, or how the kernel failed.
    """
    first, took_s = _one(runner, known[0], 0, outputs, 0, tolerance, limit_s)
    again: list[Check] = []
    for turn in range(1, repeats):
        check, once_more_s = _one(runner, known[0], 0, outputs, turn & 1, tolerance, limit_s, True)
        again.append(check)
        took_s = min(took_s, once_more_s)
        for _ in range(_MORE_CALLS if took_s > enough_s and took_s < _BUSY_S else 0):
            took_s = min(took_s, _one(runner, known[0], 0, outputs, turn & 1, tolerance, limit_s)[1])
        if took_s > enough_s:
            return Verified(max(first.max_error, check.max_error), check.same, took_s)
    others = [
        _one(runner, item, index, outputs, index & 1, tolerance, limit_s, stale=index & 1 < repeats)[0]
        for index, item in enumerate(known[1:], 1)
    ]
    return Verified(max(one.max_error for one in (first, *again, *others)), all(one.same for one in again))


def verify_later(
    runner: Runner, known: Known, other: Known, outputs: tuple[SharedTensors, SharedTensors], tolerance: Tolerance,
    rng: np.random.Generator, *, limit_s: float,
) -> None:  # fmt: skip
    """For a kernel that can remember, be it in scratch memory: is it still right after a secret number of calls, and
    where other data has come to the addresses that it knows?

    `runner` must have been made with `known` as its first set and with its weights, and has been called on it. `other`
    may have other weights; what the kernel packs of them it packs anew.

    Raises:
        KernelFault: WRONG, OUT_OF_BOUNDS, or how the kernel failed.
    """
    took_s = runner.run(1, 0, timeout_s=limit_s)
    calls = min(int(rng.integers(*_LATER)), int(_LATER_S / max(took_s, 1e-9)))
    if calls:
        runner.run(calls, 0, span=1, timeout_s=limit_s + 20 * _LATER_S)
    _one(runner, known, 0, outputs, 0, tolerance, limit_s)
    weights = [(known.constants, other.constants)] if known.constants and other.constants else []
    with exchanged((known.inputs, other.inputs), *weights):
        try:
            if weights:
                runner.prepare(limit_s)
            _one(runner, replace(other, inputs=known.inputs), 0, outputs, 1, tolerance, limit_s, stale=True)
        except WrongOutput as wrong:
            raise WrongOutput(
                f"where other data has come to an address that it had read before: {wrong.reason}", wrong.max_error
            ) from None


def _one(
    runner: Runner, known: Known, index: int, outputs: tuple[SharedTensors, SharedTensors], variant: int,
    tolerance: Tolerance, limit_s: float, again: bool = False, stale: bool = False,
) -> tuple[Check, float]:  # fmt: skip
    """One call on set `index` into output buffer `variant`, and its seconds less what its threads waited for
    processors; `again` compares both buffers' bits.

    A `stale` buffer looks as in a timed batch: an earlier answer with a poisoned sample, over scratch memory as the
    last call left it. Other inputs than the task's own are met in verification only, and a kernel must not see where
    it is.
    """
    written = outputs[variant]
    if stale:
        Samples(written, np.random.default_rng())
    else:
        poison(written, variant)
    poison_slack(known.inputs, variant)
    fill = None if stale else POISON[variant]
    before_s = runner.waited_s
    seconds = runner.run(1, index, buffer=variant, fill=fill, timeout_s=limit_s)
    seconds -= max(0.0, runner.waited_s - before_s)
    damaged = damaged_slack(written, variant)
    if damaged:
        raise KernelFault(Status.OUT_OF_BOUNDS, damaged)
    found = check_outputs(written, known.reference, tolerance, earlier=outputs[1 - variant] if again else None)
    if not found.passed:
        raise WrongOutput(found.reason + _on(known), found.max_error)
    return found, seconds


def _on(known: Known) -> str:
    """On what inputs, where they are not the task's own."""
    return "" if known.family == "given" else f" on inputs of family {known.family!r}"


class WrongOutput(KernelFault):
    """WRONG, with how far off it was."""

    def __init__(self, reason: str, max_error: float) -> None:
        super().__init__(Status.WRONG, reason)
        self.max_error = max_error


class SampledBatches:
    """A runner over the timing ring whose every batch is verified at secret random elements.

    Args:
        sets: how many of the runner's, from the first on, a batch rotates through; by default the ring.
        strangers: sets of other families, which the runner has behind those.
        scatter: bytes per second that the kernel may take to write outputs to places of their own.
        whole: no brief batch is cut.
    """

    most = 1 << 20

    def __init__(
        self, runner: Runner, material: Material, tolerance: Tolerance, rng: np.random.Generator, *, limit_s: float,
        sets: int | None = None, strangers: Sequence[Known] = (), scatter: float = SLOW_SCATTER, whole: bool = False,
    ) -> None:  # fmt: skip
        self._runner = runner
        self._strangers = strangers
        self._whole = whole
        self._sets = sets or len(material.ring)
        self._scatter = scatter
        self._material = material
        self._tolerance = tolerance
        self._rng = rng
        self._limit_s = limit_s
        self._first = 0  # set of a brief batch
        self._calls = 0  # in it
        self._took_s = 0.0  # by the one call before it
        self._cut = False
        self._swapped = False  # whether the first two sets hold each other's data

    @property
    def busy_s(self) -> float:
        return self._runner.busy_s

    def empty(self, *, again: bool = False) -> float:
        return self._runner.empty()

    def brief(self, *, again: bool = False) -> Brief:
        """No set twice, into output buffers of their own, all of them looked at, one of them at every element.

        One call on a set that is left out comes before, while the others' contents are hidden; then scratch memory is
        wiped and the outputs are poisoned as a whole, so that nothing tells which elements are looked at. Done
        `again`, on the same sets, it leaves all of that out. The runner itself reads a ring that may fit the last cache
        through right before: it lies where a long batch finds it, and the kernel has seen none of it. What no calls
        take is taken off. Where the one call is slow the others are fewer, three at least, and nothing is taken off.
        """
        ring = self._material.ring
        sets = len(ring)
        all_known = all(self._material.answer(index) is not None for index in range(sets))
        outputs = (*self._material.outputs, *(self._material.spare if all_known else ()))[: sets - 1]
        near = sets if sum(one.total_bytes for one in ring) <= _LAST_CACHE_BYTES else 0
        if again:
            outputs = outputs[: self._calls]
            samples = [Samples(written, self._rng) for written in outputs]
            idle = self._idle(near)
        else:
            self._first = int(self._rng.integers(sets)) if all_known else 0
            with hidden([ring[(self._first + at) % sets] for at in range(len(outputs))]):
                self._took_s = self._runner.run(1, (self._first - 1) % sets, span=sets, timeout_s=6 * self._limit_s)
                calls = max(_LEAST_CALLS, math.ceil(CUT_S / max(self._took_s, 1e-9)))
                enough = len(outputs) if self._whole else calls
                self._cut, outputs = enough < len(outputs), outputs[:enough]
                self._calls = len(outputs)
                # All of them: what lies in those that this batch leaves alone, earlier processes may have written.
                for variant, written in enumerate((*self._material.outputs, *self._material.spare)):
                    poison(written, variant & 1)
                samples = [Samples(written, self._rng, poisoned=True) for written in outputs]
                # In a command of its own: a large workspace takes as long to wipe as a call.
                self._runner.run(0, 0, fill=int(self._rng.integers(1, 256)), timeout_s=self._limit_s)
                idle = self._idle(near)
        start, calls = self._first, self._calls
        seconds, busy_s = self._runner.run_ready(
            calls, start, span=sets, near=near, timeout_s=5 * self._limit_s + 20 * self._took_s * calls
        )
        most_s = 0.0 if self._cut else _IDLE_S
        idle_s, idle_busy_s = (min(statistics.median(column), most_s) for column in zip(*idle, strict=True))
        for at, sample in enumerate(samples):
            self._check(sample, (start + at) % sets)
        if not again:  # one of them whole: a sample misses a single element
            at = int(self._rng.integers(len(outputs)))
            self._check(outputs[at], (start + at) % sets)
        busy_s = busy_s - idle_busy_s if math.isfinite(busy_s) else math.inf
        scattered_s = sum(written.total_bytes for written in outputs) / self._scatter
        return Brief(calls, seconds - idle_s, scattered_s, busy_s, self._cut)

    def _idle(self, near: int) -> list[tuple[float, float]]:
        return [self._runner.run_ready(0, 0, span=1, near=near, timeout_s=self._limit_s) for _ in range(_IDLE)]

    def batch(self, n: int, expected_s: float) -> float:
        """Seconds for n calls that end on a random one of the sets whose right answer is known.

        Now and then another batch comes before, of a secret number of calls, which is not timed and looks no different
        until it ends. It ends on a stranger, or the first two sets have changed places: what is right for the task's
        own inputs only, where nothing has changed since it last looked, or late in a batch, wherever it believes to be
        timed, is met.

        Raises:
            KernelFault: the batch failed, took too long, or a sampled element is not right.
        """
        limit_s = 5 * self._limit_s + 20 * expected_s
        if self._rng.random() < _STRANGE:
            self._run_strange(n, limit_s)
        known = [index for index in range(self._sets) if self._material.answer(index) is not None]
        return self._run(n, int(self._rng.choice(known)), self._sets, limit_s)

    def _run_strange(self, n: int, limit_s: float) -> None:
        some = int(self._rng.integers(1, n + 1))  # any call may be one that is looked at
        stranger = int(self._rng.integers(-1, len(self._strangers)))
        if stranger >= 0:
            self._run(some, self._sets + stranger, self._sets + len(self._strangers), limit_s)
            return
        first, second = self._material.pool[:2]
        with exchanged((first.inputs, second.inputs)):
            self._swapped = True
            try:
                self._run(some, int(self._rng.integers(min(2, self._sets))), self._sets, limit_s)
            finally:
                self._swapped = False
        # What was exchanged lies in the caches now, as before no other batch.
        self._run(n, int(self._rng.integers(min(2, self._sets))), self._sets, limit_s)

    def _run(self, n: int, last: int, sets: int, limit_s: float) -> float:
        samples = [Samples(outputs, self._rng) for outputs in self._material.outputs]
        seconds = self._runner.run(n, (last - (n - 1)) % sets, span=sets, timeout_s=limit_s)
        self._check(samples[(n - 1) & 1], last)
        if n > 1:
            self._check(samples[n & 1], (last - 1) % sets)
        return seconds

    def _check(self, looked_at: Samples | SharedTensors, index: int) -> None:
        stranger = self._strangers[index - self._sets] if index >= self._sets else None
        swapped = self._swapped and index < 2
        answer = stranger.reference if stranger else self._material.answer(1 - index if swapped else index)
        if answer is None:
            return
        if isinstance(looked_at, Samples):
            found = looked_at.check(answer, self._tolerance)
        else:
            found = check_outputs(looked_at, answer, self._tolerance)
        if not found.passed:
            raise WrongOutput(found.reason + (_on(stranger) if stranger else ""), found.max_error)


class FreshBatches:
    """For a kernel that keeps state: every batch in a process of its own, no set twice, verified whole.

    Args:
        start: makes a fresh runner over the timing ring and, behind it, the strangers.
        strangers, scatter, whole: as for `SampledBatches`.
    """

    def __init__(
        self, start: Callable[[], Runner], material: Material, tolerance: Tolerance, rng: np.random.Generator, *,
        limit_s: float, strangers: Sequence[Known] = (), scatter: float = SLOW_SCATTER, whole: bool = False,
    ) -> None:  # fmt: skip
        self._start = start
        self._strangers = strangers
        self._whole = whole
        self._material = material
        self._tolerance = tolerance
        self._rng = rng
        self._limit_s = limit_s
        self._scatter = scatter

    busy_s = math.inf  # a process per batch

    @property
    def most(self) -> int:
        return len(self._material.ring) - _others(self._material)

    def empty(self, *, again: bool = False) -> float:
        if again:
            return math.inf
        others = _others(self._material)
        with self._start() as runner:
            runner.run(others, 0, base=2, span=others, timeout_s=(5 + others) * self._limit_s)  # as before every batch
            return runner.empty()

    def brief(self, *, again: bool = False) -> Brief | None:
        """As for any other kernel, in a process of its own: of a batch only the end can be verified."""
        if again:
            return None
        with self._start() as runner:
            return SampledBatches(
                runner, self._material, self._tolerance, self._rng,
                limit_s=self._limit_s, strangers=self._strangers, scatter=self._scatter, whole=self._whole,
            ).brief()  # fmt: skip

    def batch(self, n: int, expected_s: float) -> float:
        """Seconds for n calls, at most `most`, that end on set 1.

        A batch of a secret number of calls, which is not timed, comes before in a process of its own: any call may
        be one of those that are looked at. It may end on a stranger.

        Raises:
            KernelFault: the batch failed, took too long, or an output is not right.
        """
        stranger = [None, *self._strangers][int(self._rng.integers(len(self._strangers) + 1))]
        self._verified(int(self._rng.integers(1, self.most + 1)), expected_s, stranger)
        return self._verified(n, expected_s)

    def _verified(self, n: int, expected_s: float, stranger: Known | None = None) -> float:
        """n calls that end on set 1 of the ring, or on the stranger."""
        material, others, sets = self._material, _others(self._material), len(self._material.ring)
        span, last, ends = sets, 1, [material.pool[1], material.pool[0]]
        if stranger is not None:
            span, last, ends = sets + len(self._strangers), sets + self._strangers.index(stranger), [stranger]
        with self._start() as runner:
            warm_s = 5 * self._limit_s + 20 * expected_s * others / n
            runner.run(others, 0, base=2, span=others, timeout_s=warm_s)  # warms up
            for variant, written in enumerate(material.outputs):
                poison(written, variant)
            seconds = runner.run(n, (last - (n - 1)) % span, span=span, timeout_s=5 * self._limit_s + 20 * expected_s)
        for back, known in enumerate(ends[:n]):
            found = check_outputs(material.outputs[(n - 1 - back) & 1], known.reference, self._tolerance)
            if not found.passed:
                raise WrongOutput(f"in a timed batch: {found.reason}{_on(known)}", found.max_error)
        return seconds


def _others(material: Material) -> int:
    """How many sets of the ring, from set 2 on, a fresh process warms up on; none of them is timed."""
    return (len(material.ring) - 1) // 2
