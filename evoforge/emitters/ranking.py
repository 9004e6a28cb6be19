"""What is worth a measurement, told from what was measured: trees rank the drafts, effects refuse the hopeless."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Decisions", "Effects", "Ranker"]

Decisions = Mapping[str, Any]
"""A genome's, text, and values of parameters, integers of 1 and more, where they are known."""

_TREES = 60
_SHARE = 0.5  # of the decisions, among which a split is looked for
_EFFECT_SD, _NOISE_SD = 2.0, 1.0  # log2: what a decision may do, over the whole range, and what decisions do together
_LEVEL_SD = 0.2  # log2: how far apart kernels are that count alike for the level
_KNOWN = 2  # measurements that what is known before any counts as


@dataclass(frozen=True)
class Ranker:
    """Extremely randomised trees, grown on decisions and values of parameters (Geurts et al. 2006).

    Decisions do different things beside one another, and a few dozen kernels were measured: trees see that, where a sum
    of effects does not. A score is the mean of all trees and one standard deviation: where they disagree, little is
    known (as in SMAC: Hutter et al. 2011).
    """

    columns: Any
    trees: Sequence[Any]

    @classmethod
    def fit(cls, rows: Sequence[tuple[Decisions, float]]) -> Ranker:
        """From one or more (decisions, log2 speed-up), which may come more than once; equal rows give equal trees."""
        from sklearn.ensemble import ExtraTreesRegressor  # takes a second, which only a search is to wait for
        from sklearn.feature_extraction import DictVectorizer

        columns = DictVectorizer(dtype=np.float32, sparse=False)
        table = columns.fit_transform([_told(decisions) for decisions, _ in rows])
        forest = ExtraTreesRegressor(_TREES, max_features=_SHARE, random_state=0)
        forest.fit(table, np.array([height for _, height in rows]))
        trees = [one.tree_ for one in forest.estimators_]  # asked directly, they answer ten times sooner
        return cls(columns, trees)

    def scores(self, drafts: Sequence[Decisions]) -> npt.NDArray[np.float64]:
        """The optimistic log2 speed-up of each of one or more; shape (drafts,)."""
        table = self.columns.transform([_told(draft) for draft in drafts])
        guesses = np.array([tree.predict(table)[:, 0] for tree in self.trees])
        return np.asarray(guesses.mean(axis=0) + guesses.std(axis=0))


def _told(decisions: Decisions) -> dict[str, Any]:
    """Values by their logarithm: they double from choice to choice. What is not there is 0."""
    return {key: value if isinstance(value, str) else 1.0 + math.log2(value) for key, value in decisions.items()}


@dataclass(frozen=True)
class Effects:
    """What each decision does to a kernel, added up: to tell what is worth nothing.

    An objective is taken for the level of the fast kernels and the sum of the effects of a genome's decisions, each
    N(0, 2²) before anything was measured (Bayesian linear regression). Unlike trees, it goes on to where nothing was
    measured, and takes what is known beforehand.
    """

    offset: float
    mean: Mapping[tuple[str, Any], float]

    @classmethod
    def fit(cls, rows: Sequence[tuple[Decisions, float]], known: Sequence[tuple[Decisions, float]] = ()) -> Effects:
        """From (decisions, log2 speed-up); decisions may come more than once.

        Args:
            known: decisions and what they are expected to add (log2) before anything was measured; each counts as two
                measurements.
        """
        offset = _level([height for _, height in rows]) if rows else 0.0
        rows = [*rows, *[(decisions, offset + effect) for decisions, effect in known] * _KNOWN]
        items: dict[tuple[str, Any], int] = {}
        for decisions, _ in rows:
            for item in decisions.items():
                items.setdefault(item, len(items))
        features = np.zeros((len(rows), len(items)))
        for at, (decisions, _) in enumerate(rows):
            features[at, [items[item] for item in decisions.items()]] = 1.0
        information = features.T @ features / _NOISE_SD**2 + np.eye(len(items)) / _EFFECT_SD**2
        over = np.array([height - offset for _, height in rows])
        mean = np.linalg.solve(information, features.T @ over / _NOISE_SD**2)
        return cls(offset, dict(zip(items, mean.tolist(), strict=True)))

    def expected(self, decisions: Decisions) -> float:
        """The mean log2 speed-up; what was never tried adds nothing."""
        return self.offset + math.fsum(self.mean.get(item, 0.0) for item in decisions.items())


def _level(heights: Sequence[float]) -> float:
    """Their mean, in which what is slow counts little."""
    far = max(heights) - np.array(heights)
    return float(np.average(heights, weights=1.0 / (_LEVEL_SD**2 + (far / 2) ** 2)))
