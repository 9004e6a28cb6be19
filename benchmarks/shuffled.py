"""Controls: the same evolution, with credit that tells nothing of the meta-prompt that earned it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from evoforge.core import MetaPrompt, Status
from evoforge.emitters import Arm, Bandit, Outcome
from evoforge.prompts import Note, PromptPool

__all__ = ["Deck", "ScrambledBandit", "ScrambledPool", "ShuffledBandit", "ShuffledPool"]

_RECENT = 20


class ShuffledPool(PromptPool):
    """Books every outcome under an active version drawn at random: by ticket, so that the bandit does the same."""

    def __init__(self, prompts: Iterable[MetaPrompt], seed: int) -> None:
        super().__init__(prompts)
        self._seed = seed

    def drawn(self, ticket: int) -> str:
        active = self.active()
        return active[int(np.random.default_rng([self._seed, 7, ticket]).integers(len(active)))].ref

    def credit(
        self, ref: str | None, *, gain: float, cost_s: float, valid: bool, cost_usd: float = 0.0,
        note: Note | None = None,
    ) -> None:  # fmt: skip
        if ref is not None and note is not None:
            ref = self.drawn(note.ticket)
        super().credit(ref, gain=gain, cost_s=cost_s, valid=valid, cost_usd=cost_usd, note=note)


class ShuffledBandit(Bandit):
    """The bandit to a `ShuffledPool`."""

    def __init__(self, pool: ShuffledPool, usd_per_s: float) -> None:
        super().__init__(pool.ancestors, usd_per_s=usd_per_s)
        self._pool = pool

    def tell(self, outcome: Outcome) -> None:
        if outcome.proposal.meta_prompt is not None:
            proposal = replace(outcome.proposal, meta_prompt=self._pool.drawn(outcome.ticket))
            outcome = replace(outcome, proposal=proposal)
        super().tell(outcome)

    def waste(self, ticket: int, arm: Arm, cost_usd: float) -> None:
        super().waste(ticket, replace(arm, meta_prompt=self._pool.drawn(ticket)), cost_usd)


class Deck:
    """What came of earlier outcomes: (gain, valid, status, reason) of one of the last twenty, drawn by ticket."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._results: dict[int, tuple[float, bool, str, str]] = {}

    def put(self, ticket: int, gain: float, valid: bool, status: str, reason: str) -> None:
        self._results.setdefault(ticket, (gain, valid, status, reason))

    def drawn(self, ticket: int) -> tuple[float, bool, str, str]:
        recent = sorted(self._results)[-_RECENT:]
        return self._results[recent[int(np.random.default_rng([self._seed, 8, ticket]).integers(len(recent)))]]


class ScrambledPool(PromptPool):
    """Books another outcome's end under the version that asked."""

    def __init__(self, prompts: Iterable[MetaPrompt], deck: Deck) -> None:
        super().__init__(prompts)
        self._deck = deck

    def credit(
        self, ref: str | None, *, gain: float, cost_s: float, valid: bool, cost_usd: float = 0.0,
        note: Note | None = None,
    ) -> None:  # fmt: skip
        if note is not None:
            self._deck.put(note.ticket, gain, valid, note.status, note.reason)
            gain, valid, status, reason = self._deck.drawn(note.ticket)
            note = replace(note, gain=gain, status=status, reason=reason)
        super().credit(ref, gain=gain, cost_s=cost_s, valid=valid, cost_usd=cost_usd, note=note)


class ScrambledBandit(Bandit):
    """The bandit to a `ScrambledPool`. A useless reply has no end that could be exchanged: it stays as it is."""

    def __init__(self, pool: ScrambledPool, deck: Deck, usd_per_s: float) -> None:
        super().__init__(pool.ancestors, usd_per_s=usd_per_s)
        self._deck = deck

    def tell(self, outcome: Outcome) -> None:
        status = outcome.evaluation.status if outcome.evaluation else outcome.statuses[0]
        self._deck.put(outcome.ticket, outcome.gain, outcome.valid, str(status), "")
        gain, valid, _, _ = self._deck.drawn(outcome.ticket)
        super().tell(replace(outcome, gain=gain, statuses=(Status.CORRECT if valid else Status.WRONG,)))
