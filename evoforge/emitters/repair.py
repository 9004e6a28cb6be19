"""A kernel that failed, with what went wrong."""

from __future__ import annotations

import numpy as np

from evoforge.core import Candidate, MetaPrompt, Status
from evoforge.emitters._base import Outcome, SearchView
from evoforge.emitters.assignment import Assignment, levels, turn
from evoforge.prompts import Brief, KernelBrief

__all__ = ["RepairEmitter"]

_REPAIRS = 2  # of one failed text and of what came of it
_MENDABLE = frozenset(
    {
        Status.SCREENED, Status.BUILD_ERROR, Status.LOAD_ERROR, Status.UNSUPPORTED, Status.WRONG,
        Status.OUT_OF_BOUNDS, Status.CRASH, Status.TIMEOUT, Status.OUT_OF_MEMORY,
    }
)  # fmt: skip
"""What an honest mistake can end in. Nobody is asked to mend a kernel that attacked the judge."""


class RepairEmitter:
    """Asks to mend a text that failed: compiler output, worst index or crash beside it, at most twice."""

    name = "repair"

    def ready(self, view: SearchView) -> bool:
        return view.task is not None and bool(_mendable(view))

    def assign(self, view: SearchView, meta_prompt: MetaPrompt, rng: np.random.Generator) -> Assignment | None:
        failed = _mendable(view)
        if not failed or view.task is None or view.memory is None:
            return None
        # The latest first: what went wrong lately is what the models get wrong now.
        candidate = failed[-1 - min(int(rng.geometric(0.5)) - 1, len(failed) - 1)]
        row = view.memory.last_trial(candidate.id)
        hypothesis = str(candidate.notes.get("hypothesis", ""))
        parent = KernelBrief(candidate, row, None, None, hypothesis, row.reason if row else "")
        again = turn(view, self.name, candidate)
        return Assignment(Brief(self.name, view.task, (parent,), axes=levels(view), turn=again), self.name)

    def tell(self, outcome: Outcome) -> None:
        """Nothing to learn: the campaign's memory counts the repairs."""


def _mendable(view: SearchView) -> list[Candidate]:
    """Failed texts of models and people that have repairs left, oldest first."""
    memory = view.memory
    if memory is None:
        return []
    found = []
    for candidate in memory.failed():
        row = memory.last_trial(candidate.id)
        if candidate.genome is not None or row is None or row.status not in _MENDABLE:
            continue
        asked = memory.asked("repair", candidate.id)
        if asked + _depth(view, candidate) < _REPAIRS and ("repair", candidate.id) not in view.asked:
            found.append(candidate)
    return found


def _depth(view: SearchView, candidate: Candidate) -> int:
    """How many repairs in a row led to this text."""
    assert view.memory is not None
    depth = 0
    while candidate.operator == "repair" and candidate.parents and depth < _REPAIRS:
        depth += 1
        parent = view.memory.candidate(candidate.parents[0])
        if parent is None:
            break
        candidate = parent
    return depth
