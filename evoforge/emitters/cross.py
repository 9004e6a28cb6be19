"""Two elites of different cells, mixed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from evoforge.core import MetaPrompt
from evoforge.emitters._base import Draft, Outcome, Proposal, SearchView, evolvable, first_new
from evoforge.emitters.selection import Selection

__all__ = ["CrossEmitter"]


class CrossEmitter:
    """Crosses a selected elite with a uniformly drawn one of another cell."""

    name = "cross"

    def __init__(self, selection: Selection) -> None:
        self._selection = selection

    def ready(self, view: SearchView) -> bool:
        return len(evolvable(view)) >= 2

    def ask(self, view: SearchView, meta_prompt: MetaPrompt, rng: np.random.Generator) -> Proposal | None:
        if not self.ready(view):
            return None
        return first_new(self.name, self._drafts(view, meta_prompt, rng), view, meta_prompt, rng)

    def _drafts(self, view: SearchView, meta_prompt: MetaPrompt, rng: np.random.Generator) -> Iterator[Draft | None]:
        cells = evolvable(view)
        while True:
            chosen = self._selection.parent(view, self.name, rng)
            if chosen is None:
                return
            first, hoped = chosen
            others = [cell for cell in cells if cell != first]
            second = others[int(rng.integers(len(others)))]
            a, b = view.elites[first][1].genome, view.elites[second][1].genome
            assert a is not None and b is not None
            yield Draft(view.space.cross(a, b, rng, meta_prompt.strategy), (first, second), hoped)

    def tell(self, outcome: Outcome) -> None:
        self._selection.tell(outcome)
