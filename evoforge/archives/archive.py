"""The map from cell to elite for one (task, target)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from evoforge.archives import stats
from evoforge.core import AddStatus, Cell, Elite
from evoforge.errors import UsageError

__all__ = ["Archive"]


class Archive:
    """Keeps, for every cell, the elite of the highest rank that was added (MAP-Elites grid).

    What it holds does not depend on the order of the adds: ranks are compared by
    `Elite.rank` (lower bound, then shorter source, then lower ticket), and what is still equal by
    objective, candidate and parameter values. Every (candidate, parameter values) is added once;
    when new measurements move its bound, up or down, `rebuild` from the fold.

    Args:
        shape: Levels per axis; a cell is a tuple of that length with 0 ≤ level < shape.
        reachable: The cells that the schedule space can reach; None: all. An elite outside is kept
            and counts as reachable for as long as it is there.

    Raises:
        UsageError: an axis without levels, or a reachable cell outside the shape.
    """

    def __init__(self, shape: Sequence[int] = (4, 4, 4), reachable: Iterable[Cell] | None = None) -> None:
        self.shape = tuple(shape)
        if not self.shape or min(self.shape) < 1:
            raise UsageError(f"expected at least one axis and at least one level on each, got shape {self.shape}")
        if reachable is None:
            self._mask = frozenset(itertools.product(*(range(levels) for levels in self.shape)))
        else:
            self._mask = frozenset(tuple(cell) for cell in reachable)
            for cell in self._mask:
                self._check_cell(cell)
        self._elites: dict[Cell, Elite] = {}

    def add(self, elite: Elite) -> AddStatus:
        """NEW in an empty cell, IMPROVED where it outranks the elite, else REJECTED (ties too).

        Raises:
            UsageError: the cell is outside the shape, or a number is not finite.
        """
        self._check_cell(elite.cell)
        if not (math.isfinite(elite.objective) and math.isfinite(elite.lower)):
            raise UsageError(f"expected a finite objective and bound, got {elite.objective} and {elite.lower}")
        present = self._elites.get(elite.cell)
        if present is not None and _order(elite) <= _order(present):
            return AddStatus.REJECTED
        self._elites[elite.cell] = elite
        return AddStatus.NEW if present is None else AddStatus.IMPROVED

    def remove(self, cell: Cell) -> Elite:
        """Takes the elite out of `cell`. Its runner-up is not remembered: see `rebuild`.

        Raises:
            KeyError: the cell is empty.
        """
        return self._elites.pop(cell)

    def rebuild(self, elites: Iterable[Elite]) -> None:
        """Starts again from all elites of a fold; the reachable mask stays as it was given."""
        self._elites.clear()
        for elite in elites:
            self.add(elite)

    def elites(self) -> list[Elite]:
        """Every elite, in the order of its cells."""
        return [self._elites[cell] for cell in sorted(self._elites)]

    def best(self) -> Elite | None:
        """The elite of the highest rank: the best lower bound, not the luckiest objective; ties to the lower cell."""
        return max(self.elites(), key=_order, default=None)

    def get(self, cell: Cell) -> Elite | None:
        return self._elites.get(cell)

    def __getitem__(self, cell: Cell) -> Elite:
        return self._elites[cell]

    def __contains__(self, cell: object) -> bool:
        return cell in self._elites

    def __len__(self) -> int:
        return len(self._elites)

    def __iter__(self) -> Iterator[Elite]:
        return iter(self.elites())

    @property
    def reachable(self) -> frozenset[Cell]:
        """The given mask and every filled cell outside it."""
        return self._mask | self._elites.keys()

    @property
    def coverage(self) -> float:
        """Filled / reachable cells, in [0, 1]."""
        return stats.coverage(len(self._elites), len(self.reachable))

    @property
    def qd_score(self) -> float:
        """Σ (objective + 5) over the elites, in log2 speed-up; the same in any order."""
        return stats.qd_score(elite.objective for elite in self._elites.values())

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` gives an equal archive back."""
        rows = [
            {
                "candidate": elite.candidate,
                "params": dict(elite.params),
                "cell": list(elite.cell),
                "objective": elite.objective,
                "lower": elite.lower,
                "source_length": elite.source_length,
                "ticket": elite.ticket,
            }
            for elite in self
        ]
        return {"shape": list(self.shape), "reachable": [list(cell) for cell in sorted(self._mask)], "elites": rows}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Archive:
        archive = cls(data["shape"], [tuple(cell) for cell in data["reachable"]])
        archive.rebuild(Elite(**{**row, "cell": tuple(row["cell"])}) for row in data["elites"])
        return archive

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Archive):
            return NotImplemented
        return (self.shape, self._mask, self._elites) == (other.shape, other._mask, other._elites)

    __hash__ = None  # type: ignore[assignment]  # it changes, so it must not be a key

    def __repr__(self) -> str:
        return f"Archive({len(self)} of {len(self.reachable)} cells, QD score {self.qd_score:.3f})"

    def _check_cell(self, cell: Cell) -> None:
        inside = len(cell) == len(self.shape) and all(0 <= at < end for at, end in zip(cell, self.shape, strict=True))
        if not inside:
            raise UsageError(f"expected a cell inside shape {self.shape}, got {cell}; is the descriptor another one?")


def _order(elite: Elite) -> tuple[Any, ...]:
    # `rank` can tie between two parameter values of one candidate: the rest makes the order total,
    # without which an archive would depend on the order of its adds.
    return (*elite.rank, elite.objective, elite.candidate, tuple(sorted(elite.params.items())))
