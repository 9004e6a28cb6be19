"""Constants of an elite made into declared parameters, for Optuna."""

from __future__ import annotations

import numpy as np

from evoforge.core import Cell, MetaPrompt
from evoforge.emitters._base import Outcome, SearchView
from evoforge.emitters.assignment import Assignment, elite_brief, levels, pick_elite
from evoforge.prompts import Brief

__all__ = ["ParametriseEmitter"]

_TRIES = 2  # the first reply may be useless
_FEW = 1  # declared parameters up to which there may be more to find


class ParametriseEmitter:
    """Asks for the same kernel with its block sizes and unroll factors declared, in sensible ranges.

    Only for texts that no generator made: the generator declares its own.
    """

    name = "parametrise"

    def ready(self, view: SearchView) -> bool:
        return view.task is not None and bool(self._cells(view))

    def assign(self, view: SearchView, meta_prompt: MetaPrompt, rng: np.random.Generator) -> Assignment | None:
        cell = pick_elite(view, rng, self._cells(view))
        if cell is None or view.task is None:
            return None
        brief = Brief(self.name, view.task, (elite_brief(view, cell),), axes=levels(view))
        return Assignment(brief, self.name, (cell,), cell)

    def tell(self, outcome: Outcome) -> None:
        """Nothing to learn: what was asked once is seen in the campaign's memory."""

    def _cells(self, view: SearchView) -> list[Cell]:
        """Cells of elites with hardly a parameter that nobody was asked for twice, and that have no such child."""
        return [
            cell
            for cell, (_, candidate) in sorted(view.elites.items())
            if candidate.genome is None
            and len(candidate.declared.parameters) <= _FEW
            and (self.name, candidate.id) not in view.asked
            and view.memory is not None
            and view.memory.asked(self.name, candidate.id) < _TRIES
            and not any(child.operator == self.name for child in view.memory.children(candidate.id))
        ]
