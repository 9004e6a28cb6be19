"""Meta-prompts breed while kernels do: a child every so many outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field

import numpy as np

from evoforge.campaign._desk import Desk
from evoforge.core import MetaPrompt, Outcome
from evoforge.errors import BudgetSpentError, ModelRejectedError, ReplyError, UsageError
from evoforge.llm import Reply, Request
from evoforge.prompts import PromptPool, Vocabulary, apply_rewrite, breed, rewrite_request
from evoforge.storage import MetaPromptRow

__all__ = ["Evolution"]

_STREAM = 1 << 32  # keeps its random numbers apart from the tickets'
PURPOSE = "evolve"
_BRED = 4  # with models one child in so many is bred without one


@dataclass(frozen=True)
class _Asked:
    parent: MetaPrompt
    better: MetaPrompt | None
    request: Request
    reply: Future[Reply]


@dataclass
class Evolution:
    """Breeds a child every `every` outcomes (0: never); with models all but every fourth are rewritings.

    What a prompt says is worth more to a model than other weights. `told` counts outcomes, `bred` the
    children begun; at most `active` versions are in use. A rewriting
    is asked for in one round and read in the next, so that nothing waits for the model.
    """

    every: int
    seed: int
    usd_per_s: float
    active: int
    told: int = 0
    bred: int = 0
    _asked: list[_Asked] = field(default_factory=list)

    def due(self, pool: PromptPool, desk: Desk | None) -> tuple[list[MetaPrompt], list[str]]:
        """The children that are due, added to `pool`, and the refs of what they displaced, which is retired."""
        children = [child for asked in self._asked if (child := self._read(pool, desk, asked)) is not None]
        self._asked.clear()
        while self.every and (self.bred + 1) * self.every <= self.told:
            self.bred += 1
            rng = np.random.default_rng([self.seed, _STREAM + self.bred])
            if desk is not None and desk.models and self.bred % _BRED:
                self._rewrite(pool, desk, rng)
            else:
                children.append(breed(pool, rng, usd_per_s=self.usd_per_s))
        return children, pool.shrink(self.active, usd_per_s=self.usd_per_s) if children else []

    def caught_up(self, pool: PromptPool, stored: Sequence[MetaPromptRow]) -> None:
        """Takes the children of what was told so far as born: a resumed campaign has them from its store.

        What they displaced retires, and where the store does not know it, what is worth least by now.
        """
        self.bred = self.told // self.every if self.every else 0
        children = [row for row in stored if row.meta_prompt.parents]
        for row in children:
            pool.add(row.meta_prompt)
        for row in children:
            for ref in row.displaced:
                pool.retire(ref)
        if children:
            pool.shrink(max(self.active, 1), usd_per_s=self.usd_per_s)

    def _rewrite(self, pool: PromptPool, desk: Desk, rng: np.random.Generator) -> None:
        parent, _ = pool.parents(rng, usd_per_s=self.usd_per_s)
        better = pool.better(parent.ref, usd_per_s=self.usd_per_s)
        model = desk.models[int(rng.integers(len(desk.models)))]
        system, user = rewrite_request(
            parent, better, pool.evidence(parent.ref),
            better_evidence=pool.evidence(better.ref) if better else None, vocabulary=Vocabulary.of(pool),
            send=desk.send, tokens=desk.room(model),
        )  # fmt: skip
        self._asked.append(_Asked(parent, better, *desk.start(model, system, user, PURPOSE)))

    def _read(self, pool: PromptPool, desk: Desk | None, asked: _Asked) -> MetaPrompt | None:
        """The rewritten prompt; None where the model gave nothing that may be used."""
        try:
            found = asked.reply.result()
        except (BudgetSpentError, CancelledError, ModelRejectedError):  # what kernels are asked for meets the same
            return None
        if desk is not None:
            desk.fit(asked.request, found)
        if found.outcome is not Outcome.OK:
            return None
        parent = asked.parent
        try:
            child = apply_rewrite(
                parent, found.text, pool.next_version(parent.name), better=asked.better, vocabulary=Vocabulary.of(pool)
            )
            pool.add(child)
        except (ReplyError, UsageError):
            return None
        return child
