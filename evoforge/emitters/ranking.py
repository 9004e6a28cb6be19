"""Which of many drafts is worth a measurement: what each decision has done so far, added up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from evoforge.emitters._base import Genome

__all__ = ["Ranker"]

_PRIOR_SD = 0.3  # log2: what a decision is expected to do
_NOISE_SD = 0.2  # log2: a quick trial's noise
_BLUNT_SD, _BLUNT_NOISE_SD = 2.0, 1.0  # log2: over the whole range decisions do more, and what they do together too
_KNOWN = 2  # measurements that what is known before any counts as
_FAR = 0.5  # noise added per log2 below the best: what limits a slow kernel says little about fast ones

Item = tuple[str, Any]


@dataclass(frozen=True)
class Ranker:
    """Bayesian linear regression of objectives on decisions, with an upper confidence bound.

    An objective is taken for the sum of the effects of a genome's decisions, each N(0, 0.3²) before
    anything was measured; the score is the mean of that sum and one standard deviation. So what is
    known to help is combined, and what was never tried gets its chance. (LinUCB: Li et al. 2010.)
    """

    items: dict[Item, int]
    offset: float
    mean: npt.NDArray[np.float64]
    covariance: npt.NDArray[np.float64]
    prior_sd: float = _PRIOR_SD

    @classmethod
    def fit(
        cls, rows: Sequence[tuple[Genome, float]], *, blunt: bool = False, known: Sequence[tuple[Genome, float]] = ()
    ) -> Ranker:
        """From (genome, log2 speed-up) pairs; a genome may come more than once.

        Args:
            known: decisions and what they are expected to add (log2) before anything was measured; each counts as two
                measurements.
            blunt: takes slow kernels at their word, and a decision may do much: not for what is best, but for what is
                worth nothing.
        """
        prior_sd, noise_sd, far = (_BLUNT_SD, _BLUNT_NOISE_SD, 0.0) if blunt else (_PRIOR_SD, _NOISE_SD, _FAR)
        heights = np.array([height for _, height in rows])
        best = heights.max() if rows else 0.0
        offset = float(np.average(heights, weights=_precision(best - heights, _NOISE_SD, _FAR))) if rows else 0.0
        rows = [*rows, *[(genome, offset + effect) for genome, effect in known] * _KNOWN]
        heights = np.array([height for _, height in rows])
        precision = _precision(best - heights, noise_sd, far)
        items: dict[Item, int] = {}
        for genome, _ in rows:
            for item in genome.items():
                items.setdefault(item, len(items))
        features = np.zeros((len(rows), len(items)))
        for at, (genome, _) in enumerate(rows):
            features[at, [items[item] for item in genome.items()]] = 1.0
        weighted = features.T * precision
        information = weighted @ features + np.eye(len(items)) / prior_sd**2
        covariance = np.linalg.inv(information).astype(np.float64)
        return cls(items, offset, covariance @ weighted @ (heights - offset), covariance, prior_sd)

    def expected(self, genome: Genome) -> float:
        """The mean log2 speed-up of `genome`; what was never tried adds nothing."""
        return self.offset + float(sum(self.mean[self.items[item]] for item in genome.items() if item in self.items))

    def score(self, genome: Genome) -> float:
        """The optimistic log2 speed-up of `genome`."""
        known = [self.items[item] for item in genome.items() if item in self.items]
        unknown = len(genome) - len(known)
        variance = self.covariance[np.ix_(known, known)].sum() + unknown * self.prior_sd**2
        return self.offset + float(self.mean[known].sum() + np.sqrt(max(variance, 0.0)))


def _precision(below: npt.NDArray[np.float64], noise_sd: float, far: float) -> npt.NDArray[np.float64]:
    return 1.0 / (noise_sd**2 + (far * below) ** 2)
