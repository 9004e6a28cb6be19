"""One elite, changed in a few decisions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from evoforge.core import MetaPrompt
from evoforge.emitters._base import Draft, Outcome, Proposal, SearchView, evolvable, first_new
from evoforge.emitters.selection import Selection

__all__ = ["MutateEmitter"]


class MutateEmitter:
    """Mutates a selected elite; every retry selects anew."""

    name = "mutate"

    def __init__(self, selection: Selection) -> None:
        self._selection = selection

    def ready(self, view: SearchView) -> bool:
        return bool(evolvable(view))

    def ask(self, view: SearchView, meta_prompt: MetaPrompt, rng: np.random.Generator) -> Proposal | None:
        return first_new(self.name, self._drafts(view, meta_prompt, rng), view, meta_prompt)

    def _drafts(self, view: SearchView, meta_prompt: MetaPrompt, rng: np.random.Generator) -> Iterator[Draft | None]:
        while True:
            chosen = self._selection.parent(view, self.name, rng)
            if chosen is None:
                return
            cell, hoped = chosen
            genome = view.elites[cell][1].genome
            assert genome is not None
            yield Draft(view.space.mutate(genome, rng, meta_prompt.strategy), (cell,), hoped)

    def tell(self, outcome: Outcome) -> None:
        self._selection.tell(outcome)
