"""A fresh schedule, taking nothing from the archive."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from evoforge.core import MetaPrompt
from evoforge.emitters._base import Draft, Outcome, Proposal, SearchView, first_new

__all__ = ["SampleEmitter"]


class SampleEmitter:
    """Draws genomes from the schedule space; the plain default comes first in an empty archive."""

    name = "sample"

    def ready(self, view: SearchView) -> bool:
        return True

    def ask(self, view: SearchView, meta_prompt: MetaPrompt, rng: np.random.Generator) -> Proposal | None:
        return first_new(self.name, self._drafts(view, meta_prompt, rng), view, meta_prompt, rng)

    def _drafts(self, view: SearchView, meta_prompt: MetaPrompt, rng: np.random.Generator) -> Iterator[Draft]:
        if not view.elites:
            yield Draft(view.space.default())
        while True:
            yield Draft(view.space.sample(rng, meta_prompt.strategy))

    def tell(self, outcome: Outcome) -> None:
        """It has nothing to learn: what samples are worth is the bandit's business."""
