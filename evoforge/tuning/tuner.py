"""One candidate's parameters, tuned on one target: enumerated when few, else by TPE.

Only what `ask` returns is judged and costs an evaluation; infeasible and repeated draws are settled
in here. Infeasible draws are told to the sampler as pruned trials with a violated constraint, since
failed trials are invisible to it and it would never learn where the feasible region is (Watanabe &
Hutter 2023, arXiv 2211.14411).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from evoforge.core import ParameterSpace, Params, Status

__all__ = ["Tuner"]

_ENUMERATE = 64  # feasible points up to which every one is judged
_SCAN = 4096  # combinations looked at to find out whether there are that few
_REJECTIONS = 50  # draws of the sampler that may be refused in a row
_RANDOM_DRAWS = 200  # attempts at a random feasible point
_MOST_CHECKS = 1 << 17  # of requirements for one such point: a header may hold thousands of choices
_RANKED = 8  # draws of the sampler among which scores choose
_STARTUP = 8  # trials (infeasible ones included) before TPE's model is used

Key = tuple[int, ...]


class Tuner:
    """Asks for parameter values worth judging, never the same twice.

    Several points may be out at once, and answers may come in any order or never; the values drawn
    depend on the answers that had come. Deterministic for the same calls and seed.

    Args:
        space: the candidate's declared parameters.
        seed: of everything random in here.
        trials: how many points `ask` may return.
        later: how many more other tuners of this candidate may return after these: where there are no more points
            than all of them, each will be judged.
        known: points judged before, as they would be told; never asked again.
        enqueue: points to try first (winners on the parent, on similar tasks, on other targets);
            fitted to the space by `ParameterSpace.inherit`.
        scores: what is expected of each of some points; then what comes next is the best of those to try first
            and of some that the sampler draws.
    """

    def __init__(
        self,
        space: ParameterSpace,
        *,
        seed: int,
        trials: int,
        later: int = 0,
        known: Sequence[tuple[Params, float | None, Status]] = (),
        enqueue: Sequence[Params] = (),
        scores: Callable[[Sequence[Params]], Sequence[float]] | None = None,
    ) -> None:
        self._space = space
        self._names = [parameter.name for parameter in space.parameters]
        # The sampler sees positions in sorted choices: tile sizes are ordered, not merely named.
        self._choices = {parameter.name: sorted(parameter.choices) for parameter in space.parameters}
        self._rng = np.random.default_rng(seed)
        self._left = trials
        self._scores = scores
        self._seed = seed
        self._checked = 0
        self._judged: dict[Key, tuple[float | None, Status]] = {}
        self._out: dict[Key, Any] = {}
        for params, value, status in known:
            if space.feasible(params):
                self._judged[self._key(params)] = (value, Status.WRONG if value is None else status)
        self._known = dict(self._judged)
        self._first = [space.inherit(params) for params in enqueue]
        self._few = self._enumerate(min(_ENUMERATE, trials + later))
        self._study: Any = None

    def ask(self) -> dict[str, int] | None:
        """Feasible values that were never returned nor known; None when trials or points run out."""
        if self._left <= 0:
            return None
        options = self._options()
        if not options:
            return None
        keys = list(options)
        at = 0 if self._scores is None else int(np.argmax(self._scores([self._params(key) for key in keys])))
        self._left -= 1
        self._out[keys[at]] = options.pop(keys[at])
        with _quiet():
            for trial in options.values():
                if trial is not None:
                    self._forget(trial)
        return self._params(keys[at])

    def tell(self, params: Params, value: float | None, status: Status, *, free: bool = False) -> None:
        """The verdict on a point that `ask` returned; one that was had for nothing (`free`) costs no trial.

        `value` is the objective (log2 speed-up, higher is better): final for CORRECT, what was seen
        so far for PRUNED, None for everything that gave no timing.

        Raises:
            ValueError: the point is not out, or a CORRECT one has no value.
        """
        key = self._key(params)
        if key not in self._out:
            raise ValueError(f"expected the verdict on a point that was asked and not told yet, got {dict(params)}")
        if status is Status.CORRECT and value is None:
            raise ValueError(f"a CORRECT trial must come with its objective, got None for {dict(params)}")
        trial = self._out.pop(key)
        self._left += free
        self._judged[key] = (value, status)
        if self._few is None:
            with _quiet():
                self._settle(trial or self._trial(self._params(key)), value, status)

    def _options(self) -> dict[Key, Any]:
        """New points, and their trials where the sampler drew them; without scores the first is what comes next."""
        options: dict[Key, Any] = {self._key(params): None for params in self._first if not self._taken(params)}
        if self._few is not None:
            return options | {self._key(params): None for params in self._few if not self._taken(params)}
        draws = _RANKED if self._scores is not None else int(not options)
        for _ in range(draws):
            drawn = self._draw(options)
            if drawn is None:
                break
            options[self._key(drawn[0])] = drawn[1]
            if drawn[1] is None:  # the sampler finds nothing new any more
                break
        return options

    def _enumerate(self, limit: int) -> list[dict[str, int]] | None:
        """Every feasible unknown point in seeded order, or None when there are more than `limit`."""
        if self._space.product_size() > _SCAN:
            return None
        points: list[dict[str, int]] = []
        for point in self._space.points():
            if self._key(point) not in self._judged:
                points.append(point)
            if len(points) > limit:
                return None
        return [points[int(index)] for index in self._rng.permutation(len(points))]

    def _draw(self, waiting: Mapping[Key, Any]) -> tuple[dict[str, int], Any] | None:
        """A new point that is not `waiting`, and its trial if the sampler drew it."""
        with _quiet():
            for _ in range(_REJECTIONS):
                trial = self._trial(None)
                params = {name: self._choices[name][trial.params.get(name, 0)] for name in self._names}
                key = self._key(params)
                if not self._mark_violations(trial, params):
                    self._tell_pruned(trial)
                elif key in self._out or key in waiting:
                    self._forget(trial)
                elif key in self._judged:
                    self._settle(trial, *self._judged[key])
                else:
                    return params, trial
        found = self._random_feasible()
        return None if found is None or self._key(found) in waiting else (found, None)

    def _random_feasible(self) -> dict[str, int] | None:
        """A uniform draw, repaired; None if every attempt ends at a point already taken, or it takes too long."""
        most = self._checked + _MOST_CHECKS
        for _ in range(_RANDOM_DRAWS):
            if self._checked > most:
                break
            params = self._repair({name: int(self._rng.choice(self._choices[name])) for name in self._names})
            if params is not None and not self._taken(params):
                return params
        return None

    def _repair(self, params: dict[str, int]) -> dict[str, int] | None:
        """Changes one parameter after another to what violates least; None at a dead end."""
        broken = self._violations(params)
        for name in self._rng.permutation(self._names):
            if not broken:
                break
            options = [params | {str(name): int(value)} for value in self._rng.permutation(self._choices[str(name)])]
            counts = [self._violations(option) for option in options]
            if min(counts) <= broken:
                broken = min(counts)
                params = options[counts.index(broken)]
        return None if broken else params

    def _taken(self, params: Params) -> bool:
        key = self._key(params)
        return key in self._judged or key in self._out

    def _violations(self, params: Params) -> int:
        """How many constraints `params` breaks."""
        self._checked += len(self._space.constraints)
        return self._space.broken(params)

    def _key(self, params: Params) -> Key:
        return tuple(params[name] for name in self._names)

    def _params(self, key: Key) -> dict[str, int]:
        return dict(zip(self._names, key, strict=True))

    # What follows speaks to Optuna; everything runs under `_quiet`.

    def _sampler_study(self) -> Any:
        if self._study is None:
            import optuna

            sampler = optuna.samplers.TPESampler(multivariate=True, seed=self._seed % 2**32, n_startup_trials=_STARTUP)
            self._study = optuna.create_study(direction="maximize", sampler=sampler)
            for key, (value, status) in self._known.items():
                self._settle(self._trial(self._params(key)), value, status)
        return self._study

    def _trial(self, params: Params | None) -> Any:
        """A new trial: at `params`, or where the sampler wants it."""
        from optuna.distributions import IntDistribution

        study = self._sampler_study()
        sizes = {name: len(choices) for name, choices in self._choices.items() if len(choices) > 1}
        if params is not None:
            study.enqueue_trial({name: self._choices[name].index(params[name]) for name in sizes})
        return study.ask({name: IntDistribution(0, size - 1) for name, size in sizes.items()})

    def _mark_violations(self, trial: Any, params: Params) -> bool:
        """Sets the constraint (≤ 0 is feasible) on the trial; True if it is met."""
        broken = self._violations(params)
        trial.set_constraint("require", float(broken))
        return broken == 0

    def _settle(self, trial: Any, value: float | None, status: Status) -> None:
        """Tells a feasible point's verdict; for a repeated draw, the stored one."""
        if not trial.constraints:
            trial.set_constraint("require", 0.0)
        if status is Status.CORRECT:
            self._sampler_study().tell(trial, value)
            return
        # Without a reported value a pruned trial ranks below every other: that is what a failure is.
        if status is Status.PRUNED and value is not None:
            trial.report(value, step=1)
        self._tell_pruned(trial)

    def _forget(self, trial: Any) -> None:
        """There is nothing to say about it, or not yet."""
        self._sampler_study().tell(trial, state=_state("FAIL"))

    def _tell_pruned(self, trial: Any) -> None:
        self._sampler_study().tell(trial, state=_state("PRUNED"))


def _state(name: str) -> Any:
    from optuna.trial import TrialState

    return TrialState[name]


@contextmanager
def _quiet() -> Iterator[None]:
    """Optuna without its log lines and its notes on experimental features."""
    import optuna

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", category=optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)
