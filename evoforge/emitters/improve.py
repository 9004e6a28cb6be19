"""One elite, one named bottleneck, one change."""

from __future__ import annotations

import numpy as np

from evoforge.core import MetaPrompt
from evoforge.emitters._base import Outcome, SearchView
from evoforge.emitters.assignment import (
    Assignment,
    attempts_from,
    bottleneck,
    elite_brief,
    exemplars,
    hints,
    levels,
    pick_elite,
    turn,
)  # fmt: skip
from evoforge.prompts import Brief

__all__ = ["ImproveEmitter"]


class ImproveEmitter:
    """Asks for the one change that answers an elite's bottleneck, with a hypothesis.

    The hypothesis is stored with the candidate, and how it ended is told to whoever tries next.
    """

    name = "improve"

    def ready(self, view: SearchView) -> bool:
        return view.task is not None and bool(view.elites)

    def assign(self, view: SearchView, meta_prompt: MetaPrompt, rng: np.random.Generator) -> Assignment | None:
        cell = pick_elite(view, rng)
        if cell is None or view.task is None:
            return None
        parent = elite_brief(view, cell)
        good, bad = exemplars(view, rng, [parent.candidate])
        brief = Brief(
            self.name, view.task, (parent,),
            bottleneck=bottleneck(cell, parent.evaluation, busy=view.task.busy),
            attempts=attempts_from(view, parent.candidate),
            good=good, bad=bad, axes=levels(view), turn=turn(view, self.name, parent.candidate),
        )  # fmt: skip
        return Assignment(brief, self.name, (cell,), None, hints(view, cell))

    def tell(self, outcome: Outcome) -> None:
        """Nothing to learn: what was tried from an elite is read from the campaign's memory."""
