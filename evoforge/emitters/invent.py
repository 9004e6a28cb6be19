"""A new kernel from the task alone."""

from __future__ import annotations

import numpy as np

from evoforge.core import MetaPrompt
from evoforge.emitters._base import Outcome, SearchView
from evoforge.emitters.assignment import Assignment, exemplars, levels
from evoforge.prompts import Brief

__all__ = ["InventEmitter"]


class InventEmitter:
    """Asks for a kernel that is unlike those that are there; they are shown as examples, not as parents."""

    name = "invent"

    def ready(self, view: SearchView) -> bool:
        return view.task is not None

    def assign(self, view: SearchView, meta_prompt: MetaPrompt, rng: np.random.Generator) -> Assignment | None:
        if view.task is None:
            return None
        good, bad = exemplars(view, rng)
        return Assignment(Brief(self.name, view.task, good=good, bad=bad, axes=levels(view)), self.name)

    def tell(self, outcome: Outcome) -> None:
        """Nothing to learn: which emitter earns its calls is the bandit's."""
