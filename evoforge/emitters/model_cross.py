"""The best ideas of two elites in one kernel."""

from __future__ import annotations

import numpy as np

from evoforge.core import MetaPrompt
from evoforge.emitters._base import Outcome, SearchView
from evoforge.emitters.assignment import Assignment, attempts_from, elite_brief, exemplars, hints, levels, pick_elite
from evoforge.prompts import Brief

__all__ = ["ModelCrossEmitter"]


class ModelCrossEmitter:
    """Asks for a kernel that joins what two elites of different cells do well."""

    name = "cross"

    def ready(self, view: SearchView) -> bool:
        return view.task is not None and len(view.elites) > 1

    def assign(self, view: SearchView, meta_prompt: MetaPrompt, rng: np.random.Generator) -> Assignment | None:
        first = pick_elite(view, rng)
        if first is None or view.task is None:
            return None
        second = pick_elite(view, rng, [cell for cell in view.elites if cell != first])
        if second is None:
            return None
        parents = (elite_brief(view, first), elite_brief(view, second))
        if parents[0].candidate.id == parents[1].candidate.id:
            return None
        _, bad = exemplars(view, rng, [parent.candidate for parent in parents])
        brief = Brief(
            self.name,
            view.task,
            parents,
            attempts=attempts_from(view, parents[0].candidate),
            bad=bad,
            axes=levels(view),
        )
        return Assignment(brief, self.name, (first, second), None, hints(view, first))

    def tell(self, outcome: Outcome) -> None:
        """Nothing to learn: which emitter earns its calls is the bandit's."""
