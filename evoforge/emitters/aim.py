"""A chosen cell first, then a schedule that implies it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from evoforge.core import Cell, MetaPrompt
from evoforge.emitters._base import Draft, Outcome, Proposal, SearchView, distance, evolvable, first_new
from evoforge.emitters.selection import Selection

__all__ = ["AimEmitter"]

_PATIENCE = 3  # cells that seem to take what is worth nothing, after which others are asked: a draft takes 10 to 50 ms
_FROM_ELITE = 0.75  # share of attempts that start from the nearest elite, the rest from nothing


class AimEmitter:
    """Aims at an empty or weak reachable cell, mostly from the nearest elite."""

    name = "aim"

    def __init__(self, selection: Selection) -> None:
        self._selection = selection

    def ready(self, view: SearchView) -> bool:
        return bool(view.reachable)

    def ask(self, view: SearchView, meta_prompt: MetaPrompt, rng: np.random.Generator) -> Proposal | None:
        return first_new(self.name, self._drafts(view, meta_prompt, rng), view, meta_prompt, rng)

    def _drafts(self, view: SearchView, meta_prompt: MetaPrompt, rng: np.random.Generator) -> Iterator[Draft | None]:
        target: Cell | None = None
        patience = _PATIENCE
        while patience:
            if target is None or view.scores is None:  # drafts are ranked among those for one cell
                target = self._selection.target(view, meta_prompt.strategy, rng)
            if target is None:
                return
            near = _nearest(view, target) if rng.random() < _FROM_ELITE else None
            if near is None:
                found = view.space.aim(target, rng, meta_prompt.strategy, None, None)
            else:
                elite, parent = view.elites[near]
                found = view.space.aim(target, rng, meta_prompt.strategy, parent.genome, elite.params)
            yield None if found is None else Draft(found[0], () if near is None else (near,), target, found[1])
            if found is not None and view.hopeless(found[0]):
                target = None  # this cell, it seems, takes what is worth nothing
                patience -= 1

    def tell(self, outcome: Outcome) -> None:
        self._selection.tell(outcome)


def _nearest(view: SearchView, target: Cell) -> Cell | None:
    """The elite fewest steps away; ties go to the higher objective, then to the lower cell."""
    cells = evolvable(view)
    if not cells:
        return None
    return min(cells, key=lambda cell: (distance(cell, target), -view.elites[cell][0].objective, cell))
