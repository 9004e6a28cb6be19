"""What an elite must change to reach a neighbouring cell."""

from __future__ import annotations

import numpy as np

from evoforge.core import Cell, MetaPrompt
from evoforge.emitters._base import Outcome, SearchView, distance
from evoforge.emitters.assignment import Assignment, attempts_from, elite_brief, exemplars, hints, levels, turn
from evoforge.emitters.selection import Selection
from evoforge.prompts import Brief

__all__ = ["ModelAimEmitter"]


class ModelAimEmitter:
    """Aims a model at an empty or weak reachable cell, from the nearest elite."""

    name = "aim"

    def __init__(self, selection: Selection) -> None:
        self._selection = selection

    def ready(self, view: SearchView) -> bool:
        return view.task is not None and bool(view.elites) and bool(view.reachable)

    def assign(self, view: SearchView, meta_prompt: MetaPrompt, rng: np.random.Generator) -> Assignment | None:
        target = self._selection.target(view, meta_prompt.strategy, rng)
        if target is None or view.task is None:
            return None
        cell = _nearest(view, target)
        parent = elite_brief(view, cell)
        there = () if target not in view.elites else (elite_brief(view, target),)
        good, bad = exemplars(view, rng, [parent.candidate, *(one.candidate for one in there)])
        brief = Brief(
            self.name, view.task, (parent,), target_cell=target,
            attempts=attempts_from(view, parent.candidate),
            good=there or good, bad=bad, axes=levels(view), turn=turn(view, self.name, parent.candidate),
        )  # fmt: skip
        return Assignment(brief, self.name, (cell,), target, hints(view, cell))

    def tell(self, outcome: Outcome) -> None:
        self._selection.tell(outcome)


def _nearest(view: SearchView, target: Cell) -> Cell:
    """Another elite's cell, the fewest steps away; ties go to the faster, then to the lower cell."""
    others = [cell for cell in view.elites if cell != target] or list(view.elites)
    return min(others, key=lambda cell: (distance(cell, target), -view.elites[cell][0].objective, cell))
