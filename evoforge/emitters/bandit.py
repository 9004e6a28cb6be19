"""Who gets the budget: discounted linear Thompson sampling.

An arm is (emitter, model, meta-prompt). Its reward is modelled as a sum of one effect each, plus an
intercept, by Bayesian linear regression whose older observations fade (Russac et al. 2019, arXiv
1909.09146). A meta-prompt's effect is the sum of its own and its nearest ancestors', each with a
prior of its own, so that a child starts at its parent's posterior, widened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from evoforge.core import MetaPrompt
from evoforge.emitters._base import Emitter, Outcome, SearchView
from evoforge.emitters.assignment import ModelEmitter

__all__ = ["Arm", "Bandit", "arms_of", "rank_rewards"]

_NOISE = 0.08  # variance of a reward around its arm's mean
_INTERCEPT = (0.5, 0.1)  # prior mean and variance
_EFFECT_VARIANCE = 0.04
_WEIGHT_PULLS = 8.0  # pulls of an (emitter, meta-prompt) after which its strategy weight counts half
_COST_PULLS = 2.0  # pseudo-pulls at the mean cost, for arms with little history
_HORIZON = 512  # tickets kept: older ones weigh less than discount ** 512
_FLOOR = 1e-3
_ANCESTORS = 8  # whose effects a meta-prompt has, besides its own: of weeks of evolution there are thousands
_NOTHING = 0.25  # what a right kernel that gains nothing earns of its rank
_ROWS = 256  # ranked at a time


@dataclass(frozen=True)
class Arm:
    """What can be pulled. `weight` is the meta-prompt's weight for this emitter; 0 excludes it."""

    emitter: str
    meta_prompt: str
    model: str | None = None
    weight: float = 1.0


@dataclass(frozen=True)
class _Pull:
    emitter: str
    meta_prompt: str
    model: str | None
    score: float = 0.0  # the gain; below 0 where no right kernel came of it
    cost_s: float = 0.0
    cost_usd: float = 0.0

    @property
    def group(self) -> tuple[str, str | None]:
        """What costs are kept by: the same emitter costs the same under every meta-prompt."""
        return (self.emitter, self.model)

    @property
    def arm(self) -> tuple[str, str, str | None]:
        """What was pulled."""
        return (self.emitter, self.meta_prompt, self.model)


def arms_of(
    emitters: Sequence[Emitter | ModelEmitter],
    prompts: Sequence[MetaPrompt],
    view: SearchView,
    models: Sequence[str | None] = (),
) -> list[Arm]:
    """Every arm that can propose something now; emitters that need a model have one per model."""
    return [
        Arm(emitter.name, prompt.ref, model, prompt.strategy.operators.get(emitter.name, 1.0))
        for emitter in emitters
        if emitter.ready(view)
        for model in (models if isinstance(emitter, ModelEmitter) else (None,))
        for prompt in prompts
    ]


def rank_rewards(scores: Sequence[float], window: int) -> npt.NDArray[np.float64]:
    """Per score, the share of the `window` scores up to and including it that lie strictly below.

    Ties share the lowest rank, and what is right and gains nothing earns a quarter of its rank: where most
    fail it would else be worth nearly as much as a gain. A lone score has rank 0.5. Values in [0, 1).
    """
    values = np.asarray(scores, dtype=np.float64)
    rewards = np.full(len(values), 0.5)
    for first in range(1, len(values), _ROWS):
        here = np.arange(first, min(first + _ROWS, len(values)))
        others = here[:, None] - np.arange(min(window, int(here[-1]) + 1))
        below = (others >= 0) & (values[others] < values[here, None])
        rewards[here] = below.sum(axis=1) / np.minimum(here + 1, window)
    rewards[1:][values[1:] == 0] *= _NOTHING
    return rewards


class Bandit:
    """Chooses arms and learns from outcomes.

    Its state is a set of outcomes keyed by ticket and is always read in ticket order, so the order
    of `tell` does not matter, and telling a store's outcomes again restores it.

    Args:
        lineage: maps a meta-prompt's ref to its ancestors' refs, nearest first.
        window: outcomes among which a gain is ranked.
        discount: weight of an outcome relative to the next one.
        usd_per_s: what a second of the machine is worth; an arm's cost is seconds × this + dollars. A pull without a
            right kernel takes a place in its round, too: it counts at least the seconds of a mean right one.
    """

    def __init__(
        self,
        lineage: Callable[[str], Sequence[str]] = lambda ref: (),
        *,
        window: int = 100,
        discount: float = 0.99,
        usd_per_s: float = 1e-4,
    ) -> None:
        self._lineage = lineage
        self._window = window
        self._discount = discount
        self._usd_per_s = usd_per_s
        self._done: dict[int, _Pull] = {}
        self._pending: dict[int, _Pull] = {}

    def choose(self, arms: Sequence[Arm], ticket: int, rng: np.random.Generator) -> Arm:
        """The arm with the highest sampled reward per cost; `ticket` is pending from now on.

        Pending tickets count as pulls at the mean: they narrow the posterior without moving it.

        Raises:
            ValueError: `arms` is empty.
        """
        if not arms:
            raise ValueError("expected at least one arm to choose from, got none")
        open_arms = [arm for arm in arms if arm.weight > 0] or list(arms)
        pulls = [_Pull(arm.emitter, arm.meta_prompt, arm.model) for arm in open_arms]
        mean, factor, names = self._posterior(pulls)
        sampled = mean + np.linalg.solve(factor.T, rng.standard_normal(len(mean)))
        rewards = np.maximum(self._matrix(pulls, names) @ sampled, _FLOOR)
        scores = rewards / self._costs(pulls) * self._weights(open_arms)
        best = int(np.argmax(scores))
        self._pending[ticket] = pulls[best]
        return open_arms[best]

    def tell(self, outcome: Outcome) -> None:
        """Files the outcome under its ticket; a second tell replaces the first."""
        proposal = outcome.proposal
        self._pending.pop(outcome.ticket, None)
        self._done[outcome.ticket] = _Pull(
            emitter=proposal.emitter,
            meta_prompt=proposal.meta_prompt or "",
            model=proposal.candidate.model,
            score=outcome.gain if outcome.valid else -1.0,
            cost_s=outcome.cost_s,
            cost_usd=outcome.cost_usd,
        )
        newest = max(self._done)
        if len(self._done) > 2 * _HORIZON:
            self._done = {ticket: self._done[ticket] for ticket in sorted(self._done)[-_HORIZON:]}
        self._pending = {ticket: pull for ticket, pull in self._pending.items() if ticket > newest - _HORIZON}

    def waste(self, ticket: int, arm: Arm, cost_usd: float) -> None:
        """The ticket's call was paid and gave no candidate: at the bottom of the ranks, at its cost."""
        self._pending.pop(ticket, None)
        self._done[ticket] = _Pull(arm.emitter, arm.meta_prompt, arm.model, score=-1.0, cost_usd=cost_usd)

    def forget(self, ticket: int) -> None:
        """The ticket will never be told: nothing was proposed, or its work was lost."""
        self._pending.pop(ticket, None)

    def expected(self, arms: Sequence[Arm]) -> list[tuple[float, float]]:
        """(mean, standard deviation) of each arm's reward, before costs and weights."""
        pulls = [_Pull(arm.emitter, arm.meta_prompt, arm.model) for arm in arms]
        mean, factor, names = self._posterior(pulls)
        matrix = self._matrix(pulls, names)
        spread = np.linalg.solve(factor, matrix.T)
        return list(zip((matrix @ mean).tolist(), np.sqrt((spread**2).sum(axis=0)).tolist(), strict=True))

    def _history(self) -> list[_Pull]:
        return [self._done[ticket] for ticket in sorted(self._done)[-_HORIZON:]]

    def _features(self, pull: _Pull) -> list[str]:
        ancestors = [pull.meta_prompt, *self._lineage(pull.meta_prompt)[:_ANCESTORS]]
        return ["", f"emitter {pull.emitter}", f"model {pull.model}", *(f"prompt {ref}" for ref in ancestors)]

    def _matrix(self, pulls: Sequence[_Pull], names: Mapping[str, int]) -> npt.NDArray[np.float64]:
        """One row of 0/1 features per pull; shape (pulls, names)."""
        matrix = np.zeros((len(pulls), len(names)))
        columns: dict[tuple[str, str, str | None], list[int]] = {}
        for row, pull in enumerate(pulls):
            if pull.arm not in columns:
                columns[pull.arm] = [names[feature] for feature in self._features(pull)]
            matrix[row, columns[pull.arm]] = 1.0
        return matrix

    def _posterior(
        self, candidates: Sequence[_Pull]
    ) -> tuple[npt.NDArray[np.floating[Any]], npt.NDArray[np.floating[Any]], dict[str, int]]:
        """Mean, Cholesky factor of the precision, and the columns' names (the intercept first)."""
        done, pending = self._history(), [self._pending[ticket] for ticket in sorted(self._pending)]
        known = {pull.arm: pull for pull in (*done, *pending, *candidates)}
        features = {feature for pull in known.values() for feature in self._features(pull)}
        names = {feature: column for column, feature in enumerate(sorted(features))}
        prior_mean, prior = np.zeros(len(names)), np.full(len(names), 1.0 / _EFFECT_VARIANCE)
        prior_mean[0], prior[0] = _INTERCEPT[0], 1.0 / _INTERCEPT[1]
        seen = self._matrix(done, names)
        fade = self._discount ** np.arange(len(done) - 1, -1, -1) / _NOISE
        rewards = rank_rewards([pull.score for pull in done], self._window)
        precision = np.diag(prior) + seen.T @ (seen * fade[:, None])
        mean = np.linalg.solve(precision, prior * prior_mean + seen.T @ (fade * rewards))
        waiting = self._matrix(pending, names)
        return mean, np.linalg.cholesky(precision + waiting.T @ waiting / _NOISE), names

    def _costs(self, pulls: Sequence[_Pull]) -> npt.NDArray[np.float64]:
        """Expected cost per pull, in dollars and never 0; 1 for all before anything was paid."""
        done = self._history()
        right = [pull.cost_s for pull in done if pull.score >= 0]
        least_s = sum(right) / len(right) if right else 0.0
        spent = [(pull.group, self._cost(pull, least_s)) for pull in done]
        paid = [cost for _, cost in spent if cost > 0]
        if not paid:
            return np.ones(len(pulls))
        overall = sum(paid) / len(paid)
        sums: dict[tuple[str, str | None], tuple[int, float]] = {}
        for group, cost in spent:
            count, total = sums.get(group, (0, 0.0))
            sums[group] = (count + 1, total + cost)
        costs = []
        for pull in pulls:
            count, total = sums.get(pull.group, (0, 0.0))
            costs.append((total + _COST_PULLS * overall) / (count + _COST_PULLS))
        return np.array(costs)

    def _cost(self, pull: _Pull, least_s: float) -> float:
        """In dollars. Failures are quick, and would pay best of all if they cost their own seconds only."""
        seconds = pull.cost_s if pull.score >= 0 else max(pull.cost_s, least_s)
        return seconds * self._usd_per_s + pull.cost_usd

    def _weights(self, arms: Sequence[Arm]) -> npt.NDArray[np.float64]:
        """The strategy's weights as a prior: full at first, giving way to what was seen."""
        counts = Counter((pull.emitter, pull.meta_prompt) for pull in self._history())
        pulls = np.array([counts[arm.emitter, arm.meta_prompt] for arm in arms], dtype=np.float64)
        weights = np.array([arm.weight if arm.weight > 0 else 1.0 for arm in arms])
        return np.asarray(weights ** (_WEIGHT_PULLS / (_WEIGHT_PULLS + pulls)), dtype=np.float64)
