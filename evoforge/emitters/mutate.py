"""One elite, changed in a few decisions; once decisions have a score, often in all that it is sure of."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from evoforge.core import MetaPrompt, Params
from evoforge.emitters._base import Draft, Outcome, Proposal, Scores, SearchView, evolvable, first_new
from evoforge.emitters.selection import Selection

__all__ = ["MutateEmitter"]

_CLIMBING = 0.5  # share of ranked drafts that take over everything else that has paid so far


class MutateEmitter:
    """Mutates a selected elite; every retry selects anew."""

    name = "mutate"

    def __init__(self, selection: Selection) -> None:
        self._selection = selection

    def ready(self, view: SearchView) -> bool:
        return bool(evolvable(view))

    def ask(self, view: SearchView, meta_prompt: MetaPrompt, rng: np.random.Generator) -> Proposal | None:
        return first_new(self.name, self._drafts(view, meta_prompt, rng), view, meta_prompt, rng)

    def _drafts(self, view: SearchView, meta_prompt: MetaPrompt, rng: np.random.Generator) -> Iterator[Draft | None]:
        while True:
            chosen = self._selection.parent(view, self.name, rng)
            if chosen is None:
                return
            cell, hoped = chosen
            elite, parent = view.elites[cell]
            genome = parent.genome
            assert genome is not None
            genome = view.space.mutate(genome, rng, meta_prompt.strategy)
            if view.scores is not None and rng.random() < _CLIMBING:
                genome = view.space.climb(genome, _beside(elite.params, view.scores), rng)
            yield Draft(genome, (cell,), hoped)

    def tell(self, outcome: Outcome) -> None:
        self._selection.tell(outcome)


def _beside(params: Params, scores: Scores) -> Scores:
    """`scores` of genomes, each at `params`."""
    return lambda genomes: scores([{**genome, **params} for genome in genomes])
