"""Which elite becomes a parent, and which cell is worth aiming at.

Half of the parents are drawn uniformly over the elites. The other half by Thompson sampling over
(parent cell, operator, target cell): where a child lands is a Dirichlet posterior over cells, what
landing there is worth is the mean gain seen there, and the parent with the highest sampled value
wins. It is curiosity (Cully & Demiris 2017, arXiv 1708.09251) with a model that can be checked.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np

from evoforge.core import LEAST_OBJECTIVE, AddStatus, Cell, Status, Strategy
from evoforge.emitters._base import Outcome, SearchView, distance, evolvable

__all__ = ["Selection"]

_UNIFORM = 0.5
_PRIOR_MASS = 3.0  # pseudo-landings, split over cells by closeness to the parent
_NOWHERE_MASS = 1.0  # pseudo-landings outside the map: children that are wrong or do not build
_FILLED_GAIN = 0.1  # log2 speed-up expected of a landing in a filled cell, before any was seen
_FILLED_PULLS = 2.0
_EMPTY_NEED = 4.0
_WEAK_FLOOR = 0.05
_NANO = 10**9  # gains are summed as integers, so that the order of `tell` leaves no trace


class Selection:
    """Shared by the generator emitters of one campaign, told every outcome once."""

    def __init__(self) -> None:
        self._told: set[int] = set()
        self._landings: dict[tuple[Cell, str], dict[Cell | None, int]] = defaultdict(lambda: defaultdict(int))
        self._gains: dict[Cell, tuple[int, int]] = {}
        self._worthless: set[Cell] = set()

    def tell(self, outcome: Outcome) -> None:
        """Counts one transition per parent cell. A ticket told twice counts once."""
        if outcome.ticket in self._told:
            return
        self._told.add(outcome.ticket)
        landed = outcome.cell if outcome.valid else None
        for parent in outcome.proposal.parent_cells:
            self._landings[parent, outcome.proposal.operator][landed] += 1
        if landed is not None and outcome.placement is not AddStatus.NEW:
            # The first elite of a cell gains its whole height, which says nothing about the next.
            pulls, total = self._gains.get(landed, (0, 0))
            self._gains[landed] = (pulls + 1, total + round(outcome.gain * _NANO))
        target = outcome.proposal.target_cell
        if target is not None and outcome.proposal.operator == "aim" and outcome.statuses[:1] == (Status.PRUNED,):
            self._worthless.add(target)

    def landings(self, parent: Cell, operator: str) -> dict[Cell | None, int]:
        """How often children of `parent` by `operator` landed where (None: nowhere)."""
        return dict(self._landings.get((parent, operator), {}))

    def parent(self, view: SearchView, operator: str, rng: np.random.Generator) -> tuple[Cell, Cell | None] | None:
        """(parent cell, cell hoped for), or None when no elite can be a parent.

        The cell hoped for is None for uniform draws. Ties go to the lower cell.
        """
        cells = evolvable(view)
        if not cells:
            return None
        if rng.random() < _UNIFORM:
            return cells[int(rng.integers(len(cells)))], None
        goals = sorted(view.reachable | view.elites.keys())
        worth = np.array([*self._worth(view, goals), 0.0])
        alpha = np.array([self._alpha(cell, operator, goals) for cell in cells])
        gamma = np.maximum(rng.standard_gamma(alpha), 1e-300)
        value = gamma / gamma.sum(axis=1, keepdims=True) * worth
        best = int(np.argmax(value.sum(axis=1)))
        hoped = int(np.argmax(value[best, :-1]))
        return cells[best], goals[hoped]

    def target(self, view: SearchView, strategy: Strategy, rng: np.random.Generator) -> Cell | None:
        """A reachable cell that is empty, or weak beside its neighbours; None if none is reachable.

        Drawn in proportion to need × promise × stress / (1 + attempts): a cell that resists gives way
        to others. The promise of a cell is the speed-up of the elites nearest to it, over the best: what
        is slow is also slow to judge. A kernel that was made for a cell and stopped as worth nothing
        counts there like an elite without a QD score. The stress of a cell is the product of its
        levels' weights.
        """
        cells = sorted(view.reachable)
        best = max((elite.objective for elite, _ in view.elites.values()), default=0.0)
        known = dict.fromkeys(self._worthless, LEAST_OBJECTIVE)
        known |= {at: elite.objective for at, (elite, _) in view.elites.items()}
        weights = np.zeros(len(cells))
        for index, cell in enumerate(cells):
            others = {at: height for at, height in known.items() if at != cell or cell not in view.elites}
            weights[index] = self._need(view, cell) * 2.0 ** (_promise(others, cell, best) - best)
            stress = 1.0
            for axis, level in zip(view.axes, cell, strict=True):
                stress *= strategy.stress.get(f"{axis}={level}", 1.0)
            weights[index] *= stress / (1.0 + view.attempts.get(cell, 0))
        total = float(weights.sum())
        if not total > 0:
            return None
        return cells[int(rng.choice(len(cells), p=weights / total))]

    def _alpha(self, parent: Cell, operator: str, goals: list[Cell]) -> list[float]:
        """Dirichlet parameters over `goals` and, last, nowhere."""
        prior = [0.5 ** distance(parent, goal) for goal in goals]
        scale = _PRIOR_MASS / sum(prior)
        seen = self.landings(parent, operator)
        lost = sum(count for cell, count in seen.items() if cell is None or cell not in goals)
        return [p * scale + seen.get(goal, 0) for p, goal in zip(prior, goals, strict=True)] + [_NOWHERE_MASS + lost]

    def _worth(self, view: SearchView, goals: list[Cell]) -> list[float]:
        """Expected QD-score gain of one landing in each of `goals`."""
        new = _mean((elite.objective - LEAST_OBJECTIVE for elite, _ in view.elites.values()), -LEAST_OBJECTIVE)
        worth = []
        for cell in goals:
            pulls, total = self._gains.get(cell, (0, 0))
            seen = (total / _NANO + _FILLED_GAIN * _FILLED_PULLS) / (pulls + _FILLED_PULLS)
            worth.append(seen if cell in view.elites else new)
        return worth

    def _need(self, view: SearchView, cell: Cell) -> float:
        if cell not in view.elites:
            return _EMPTY_NEED
        own = view.elites[cell][0].objective
        return max(0.0, _mean(_neighbours(view, cell), own) - own) + _WEAK_FLOOR


def _promise(known: Mapping[Cell, float], cell: Cell, default: float) -> float:
    """The mean objective `known` the fewest steps from `cell`."""
    steps = {at: distance(cell, at) for at in known}
    least = min(steps.values(), default=0)
    return _mean((known[at] for at, far in steps.items() if far == least), default)


def _neighbours(view: SearchView, cell: Cell) -> list[float]:
    """Objectives of the elites one step away."""
    return [elite.objective for other, (elite, _) in view.elites.items() if distance(cell, other) == 1]


def _mean(values: Iterable[float], default: float) -> float:
    known = list(values)
    return math.fsum(known) / len(known) if known else default
