"""The meta-prompts of a campaign: versions, ancestry, credit, and who breeds or retires.

Not an archive: what a prompt is worth moves with the search, and a maximum would enthrone a lucky
one. Which one is used next is the bandit's choice; the pool holds who descends from whom, the
totals that people and reports read, and the evidence that evolution works from.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from evoforge.core import MetaPrompt
from evoforge.errors import NotFoundError, UsageError
from evoforge.paths import data_dir
from evoforge.prompts.distance import prompt_distance
from evoforge.prompts.files import load_meta_prompts

__all__ = ["CAP", "Credit", "Evidence", "Note", "PromptPool"]

CAP = 8
"""Active versions that a pool keeps by default."""

_NANO = 10**9  # totals are integers, so that the order of credits leaves no trace
_KEPT = 16  # notes of either kind that are remembered per version
_ELSEWHERE = 32  # of the others' together
_PRIOR_USES = 8.0  # outcomes that a prompt's expected worth counts like
_ERA = 60  # outcomes around one that tell what was to be had at its time
_PROVEN_USES = 3  # a version is not retired before it was tried so often, while another one was
_TWINS = 0.1  # prompts nearer than this say the same


@dataclass(frozen=True)
class Credit:
    """What became of the candidates that one meta-prompt version asked for.

    `gain` is the summed increase of the QD score, `cost_s` the summed seconds, `cost_usd` the summed
    dollars.
    """

    uses: int = 0
    valid: int = 0
    gain: float = 0.0
    cost_s: float = 0.0
    cost_usd: float = 0.0


@dataclass(frozen=True, order=True)
class Note:
    """One outcome in words: what was asked for, hoped for, and how it ended. `gain` is of the QD score."""

    ticket: int
    operator: str
    status: str
    gain: float = 0.0
    hypothesis: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Evidence:
    """The record of one version: totals, its best outcomes and its latest failures, best and latest first.

    `best_elsewhere` and `failed_elsewhere` are of all versions outside its lineage: whether an idea helps on
    this task does not depend on who had it.
    """

    ref: str
    credit: Credit
    best: tuple[Note, ...] = ()
    failed: tuple[Note, ...] = ()
    best_elsewhere: tuple[Note, ...] = ()
    failed_elsewhere: tuple[Note, ...] = ()


class PromptPool:
    """Versions by ref (``name@version``); the active ones may be used, all are remembered."""

    def __init__(self, prompts: Iterable[MetaPrompt] = ()) -> None:
        self._prompts: dict[str, MetaPrompt] = {}
        self._retired: set[str] = set()
        self._totals: dict[str, tuple[int, int, int, int, int]] = {}
        self._outcomes: list[tuple[int, str, float, float, float]] = []
        self._best: dict[str, list[Note]] = {}
        self._failed: dict[str, list[Note]] = {}
        self._above: dict[str, tuple[str, ...]] = {}
        for prompt in prompts:
            self.add(prompt)

    @classmethod
    def default(cls, language: str) -> PromptPool:
        """The seeds that ship with evoforge, of one language.

        Raises:
            UsageError: there are none, or one cannot be read.
        """
        prompts = load_meta_prompts(data_dir("meta_prompts"), language)
        if not prompts:
            raise UsageError(f"expected seed meta-prompts for language {language!r} in meta_prompts/, found none")
        return cls(prompts)

    @classmethod
    def named(cls, name: str, language: str) -> PromptPool:
        """``default``: the seeds that ship; the name of one of them: that one alone.

        Raises:
            UsageError: no seed of this language has that name; names those that do.
        """
        pool = cls.default(language)
        if name == "default":
            return pool
        alone = [prompt for prompt in pool if prompt.name == name]
        if not alone:
            known = ", ".join(["default", *(prompt.name for prompt in pool)])
            raise UsageError(f"expected meta_prompts.pool of {known}, got {name!r}")
        return cls(alone)

    def __iter__(self) -> Iterator[MetaPrompt]:
        """Every version, in the order they came."""
        return iter(self._prompts.values())

    def __len__(self) -> int:
        return len(self._prompts)

    def __contains__(self, ref: object) -> bool:
        return ref in self._prompts

    def __getitem__(self, ref: str) -> MetaPrompt:
        """
        Raises:
            NotFoundError: no version has that ref.
        """
        try:
            return self._prompts[ref]
        except KeyError:
            known = ", ".join(self._prompts) or "none"
            raise NotFoundError(f"expected a meta-prompt name@version, got {ref!r}; the pool holds {known}") from None

    def add(self, prompt: MetaPrompt) -> None:
        """Adds a version; adding an equal one again does nothing.

        Raises:
            UsageError: the ref exists with another content, or a parent is not in the pool.
        """
        known = self._prompts.get(prompt.ref)
        if known is not None and known != prompt:
            raise UsageError(f"{prompt.ref} exists with other content; raise the version")
        for parent in prompt.parents:
            if parent not in self._prompts:
                raise UsageError(f"{prompt.ref} names the parent {parent!r}, which is not in the pool; add it first")
        self._prompts[prompt.ref] = prompt

    def next_version(self, name: str) -> int:
        """The version that a new prompt of this name gets."""
        return 1 + max((prompt.version for prompt in self if prompt.name == name), default=0)

    def active(self) -> list[MetaPrompt]:
        """The versions that may be used, in the order they came."""
        return [prompt for prompt in self if prompt.ref not in self._retired]

    def retire(self, ref: str) -> None:
        """Keeps the version but uses it no more.

        Raises:
            UsageError: it is the last active one.
        """
        if [prompt.ref for prompt in self.active()] == [self[ref].ref]:
            raise UsageError(f"{ref} is the only active meta-prompt; add another before retiring it")
        self._retired.add(ref)

    def ancestors(self, ref: str) -> tuple[str, ...]:
        """Refs of parents, their parents and so on, nearest first, each once; empty for unknown refs."""
        if ref not in self._prompts:
            return ()
        if ref not in self._above:  # for good: parents come before their children, and nothing changes
            found: dict[str, None] = {}
            queue = deque([ref])
            while queue:
                for parent in self._prompts[queue.popleft()].parents:
                    if parent not in found:
                        found[parent] = None
                        queue.append(parent)
            self._above[ref] = tuple(found)
        return self._above[ref]

    # -- credit --------------------------------------------------------------------------------

    def credit(
        self,
        ref: str | None,
        *,
        gain: float,
        cost_s: float,
        valid: bool,
        cost_usd: float = 0.0,
        note: Note | None = None,
    ) -> None:
        """Books one outcome; candidates that no meta-prompt asked for (None) book nothing.

        The order of bookings leaves no trace. Of notes, the best by gain and the latest of those
        that were not valid are kept. The note's ticket says when it was; without one it is of no time.
        """
        if ref is None:
            return
        self._outcomes.append((note.ticket if note is not None else -1, ref, gain, cost_s, cost_usd))
        old = self._totals.get(ref, (0, 0, 0, 0, 0))
        new = (1, int(valid), round(gain * _NANO), round(cost_s * _NANO), round(cost_usd * _NANO))
        uses, good, gained, spent, paid = (a + b for a, b in zip(old, new, strict=True))
        self._totals[ref] = (uses, good, gained, spent, paid)
        if note is not None and not valid:
            kept = self._failed.setdefault(ref, [])
            kept.append(note)
            kept.sort(key=lambda one: (-one.ticket, one))
            del kept[_KEPT:]
        elif note is not None:
            kept = self._best.setdefault(ref, [])
            kept.append(note)
            kept.sort(key=lambda one: (-one.gain, one))
            del kept[_KEPT:]

    def credits(self) -> Mapping[str, Credit]:
        """The totals of every version, unused ones included."""
        found = {}
        for ref in self._prompts:
            uses, valid, gain, cost, usd = self._totals.get(ref, (0, 0, 0, 0, 0))
            found[ref] = Credit(uses, valid, gain / _NANO, cost / _NANO, usd / _NANO)
        return found

    def evidence(self, ref: str) -> Evidence:
        """What is known of one version; where it has few notes of its own, its ancestors' too.

        Most of a child's text is its parents'. The nearest ancestors come first.

        Raises:
            NotFoundError: no version has that ref.
        """
        lineage = (self[ref].ref, *self.ancestors(ref))
        akin = set(lineage)
        others = [one for one in self._prompts if one not in akin]

        def notes(table: Mapping[str, list[Note]], refs: Iterable[str]) -> list[Note]:
            return [note for one in refs for note in table.get(one, ())]

        def by_gain(note: Note) -> tuple[float, Note]:
            return -note.gain, note

        def latest(note: Note) -> tuple[int, Note]:
            return -note.ticket, note

        return Evidence(
            ref,
            self.credits()[ref],
            tuple(sorted(notes(self._best, lineage)[:_KEPT], key=by_gain)),
            tuple(sorted(notes(self._failed, lineage)[:_KEPT], key=latest)),
            tuple(sorted(notes(self._best, others), key=by_gain)[:_ELSEWHERE]),
            tuple(sorted(notes(self._failed, others), key=latest)[:_ELSEWHERE]),
        )

    def worth(self, usd_per_s: float = 1e-4) -> dict[str, float]:
        """Gain of every version over what was to be had for its cost at its time: 1 is as good as the pool.

        What was to be had is the gain per dollar (dollars, and seconds at `usd_per_s`) of the sixty outcomes
        around each of its own: an archive that fills up gives less and less, and a late prompt is not to
        blame for that. Shrunk towards what was to be expected of it: its parents' worth, or 1 for seeds. The
        shrinkage weighs as much as eight outcomes. Zero for all while nothing was gained.
        """
        if not any(gain > 0 for _, _, gain, _, _ in self._outcomes):
            return dict.fromkeys(self._prompts, 0.0)
        rows = sorted(self._outcomes)
        gains = np.array([gain for _, _, gain, _, _ in rows])
        costs = np.array([cost_s * usd_per_s + usd for _, _, _, cost_s, usd in rows])
        if not costs.sum() > 0:
            costs = np.ones(len(rows))
        expected = costs * _rates(gains, costs, sum(row[0] < 0 for row in rows))
        weight = _PRIOR_USES * float(gains.mean())
        own: dict[str, tuple[float, float]] = {}
        for (_, ref, gain, _, _), due in zip(rows, expected.tolist(), strict=True):
            gained, promised = own.get(ref, (0.0, 0.0))
            own[ref] = (gained + gain, promised + due)
        found: dict[str, float] = {}
        for ref, prompt in self._prompts.items():  # parents come before their children
            above = [found[parent] for parent in prompt.parents]
            prior = sum(above) / len(above) if above else 1.0
            gained, promised = own.get(ref, (0.0, 0.0))
            found[ref] = (gained + weight * prior) / (promised + weight)
        return found

    # -- evolution -----------------------------------------------------------------------------

    def parents(self, rng: np.random.Generator, *, usd_per_s: float = 1e-4) -> tuple[MetaPrompt, MetaPrompt | None]:
        """Who breeds: the worthier of two active versions drawn at random, and likewise a partner.

        The partner is another version, or None where there is one only. Ties go to the earlier one.
        """
        active, worth = self.active(), self.worth(usd_per_s)
        first = _tournament(active, worth, rng)
        others = [prompt for prompt in active if prompt.ref != first.ref]
        return first, _tournament(others, worth, rng) if others else None

    def better(self, ref: str, *, usd_per_s: float = 1e-4) -> MetaPrompt | None:
        """The worthiest other active version, if it is worthier than `ref`: what `ref` can learn from."""
        worth = self.worth(usd_per_s)
        others = [prompt for prompt in self.active() if prompt.ref != ref]
        best = max(others, key=lambda prompt: worth[prompt.ref], default=None)
        return best if best is not None and worth[best.ref] > worth[self[ref].ref] else None

    def shrink(self, cap: int = CAP, *, usd_per_s: float = 1e-4) -> list[str]:
        """Retires versions until at most `cap` are active, and returns their refs.

        Of two that say nearly the same the less worthy goes first, then the least worthy of all.
        A version that was hardly tried waits while a tried one can go. The last of a lineage (a
        seed's name) stays while another lineage has three.

        Raises:
            UsageError: the cap is below one.
        """
        if cap < 1:
            raise UsageError(f"expected room for at least one meta-prompt, got {cap}; raise meta_prompts.active")
        gone = []
        while len(self.active()) > cap:
            ref = self._least(usd_per_s)
            self.retire(ref)
            gone.append(ref)
        return gone

    def _least(self, usd_per_s: float) -> str:
        active, worth, credits = self.active(), self.worth(usd_per_s), self.credits()
        members = {prompt.name: sum(one.name == prompt.name for one in active) for prompt in active}
        crowded = max(members.values()) >= 3
        free = [prompt for prompt in active if members[prompt.name] > 1 or not crowded]
        tried = [prompt for prompt in free if credits[prompt.ref].uses >= _PROVEN_USES] or free

        def rank(prompt: MetaPrompt) -> tuple[bool, float, int]:
            twin = any(
                other.ref != prompt.ref
                and worth[other.ref] >= worth[prompt.ref]
                and prompt_distance(prompt, other) < _TWINS
                for other in active
            )
            return (not twin, worth[prompt.ref], -active.index(prompt))

        return min(tried, key=rank).ref


def _rates(gains: npt.NDArray[np.float64], costs: npt.NDArray[np.float64], timeless: int) -> npt.NDArray[np.float64]:
    """Gain per dollar around each outcome, in order of time; over all for the first `timeless` ones."""
    overall = gains.sum() / costs.sum()
    rates = np.full(len(gains), overall)
    had, paid = (np.concatenate([[0.0], np.cumsum(values)]) for values in (gains[timeless:], costs[timeless:]))
    at = np.arange(count := len(gains) - timeless)
    first, last = np.maximum(0, at - _ERA // 2), np.minimum(count, at + _ERA // 2)
    few = _PRIOR_USES * paid[-1] / max(count, 1)  # so that an era without any gain promises something
    rates[timeless:] = (had[last] - had[first] + few * overall) / (paid[last] - paid[first] + few)
    return rates


def _tournament(prompts: Sequence[MetaPrompt], worth: Mapping[str, float], rng: np.random.Generator) -> MetaPrompt:
    drawn = sorted(int(index) for index in rng.integers(len(prompts), size=2))
    return max((prompts[index] for index in drawn), key=lambda prompt: worth[prompt.ref])
