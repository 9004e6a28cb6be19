"""The meta-prompts of a campaign: versions, ancestry, credit.

Not an archive: what a prompt is worth moves with the search, and a maximum would enthrone a lucky
one. Which one is used next is the bandit's choice; the pool holds who descends from whom and the
plain totals that people and reports read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from evoforge.core import MetaPrompt
from evoforge.errors import NotFoundError, UsageError
from evoforge.paths import data_dir
from evoforge.prompts.files import load_meta_prompts

__all__ = ["Credit", "PromptPool"]

_NANO = 10**9  # totals are integers, so that the order of credits leaves no trace


@dataclass(frozen=True)
class Credit:
    """What became of the candidates that one meta-prompt version asked for.

    `gain` is the summed increase of the QD score, `cost_s` the summed seconds.
    """

    uses: int = 0
    valid: int = 0
    gain: float = 0.0
    cost_s: float = 0.0


class PromptPool:
    """Versions by ref (``name@version``); the active ones may be used, all are remembered."""

    def __init__(self, prompts: Iterable[MetaPrompt] = ()) -> None:
        self._prompts: dict[str, MetaPrompt] = {}
        self._retired: set[str] = set()
        self._totals: dict[str, tuple[int, int, int, int]] = {}
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
        found: list[str] = []
        queue = [ref]
        while queue:
            prompt = self._prompts.get(queue.pop(0))
            for parent in prompt.parents if prompt else ():
                if parent not in found:
                    found.append(parent)
                    queue.append(parent)
        return tuple(found)

    def pick(self, choose: Callable[[Sequence[MetaPrompt]], int]) -> MetaPrompt:
        """The active version at the index that `choose` (a bandit, say) names."""
        active = self.active()
        return active[choose(active)]

    def credit(self, ref: str | None, *, gain: float, cost_s: float, valid: bool) -> None:
        """Books one outcome; candidates that no meta-prompt asked for (None) book nothing."""
        if ref is None:
            return
        uses, good, gained, spent = self._totals.get(ref, (0, 0, 0, 0))
        self._totals[ref] = (uses + 1, good + valid, gained + round(gain * _NANO), spent + round(cost_s * _NANO))

    def credits(self) -> Mapping[str, Credit]:
        """The totals of every version, unused ones included."""
        totals = {ref: self._totals.get(ref, (0, 0, 0, 0)) for ref in self._prompts}
        return {ref: Credit(u, v, gain / _NANO, cost / _NANO) for ref, (u, v, gain, cost) in totals.items()}
