"""Controls: the same space of schedules and parameters, searched without an archive to learn from."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import optuna

from evoforge.campaign._loop import Loop
from evoforge.campaign._state import State
from evoforge.core import Candidate, Params, Point, Strategy, point
from evoforge.emitters import Outcome, Proposal
from evoforge.lowering.space import ScheduleSpace

__all__ = ["FlatLoop", "OptunaSource", "RandomSource", "Source"]

_TRIES = 256  # draws that may meet what was measured already, in a row
_WORST = -5.0  # log2 speed-up: what a kernel that fails is told as


class Source:
    """Where points (a kernel at parameter values) come from. None of them is measured twice."""

    name: str

    def __init__(self, space: ScheduleSpace, seed: int) -> None:
        self.space, self.seed = space, seed
        self._out: set[Point] = set()

    def draw(self, state: State, ticket: int) -> Proposal | None:
        """A point that was not drawn before; None where none is found."""
        rng = np.random.default_rng([self.seed, ticket])
        for _ in range(_TRIES):
            candidate, params = self.point(ticket, rng)
            key = point(candidate.id, params)
            if key not in self._out and state.trial(candidate.id, params) is None:
                self._out.add(key)
                return Proposal(candidate, operator=self.name, emitter=self.name, params_hint=params)
            self.again(ticket, state, candidate, params)
        return None

    def point(self, ticket: int, rng: np.random.Generator) -> tuple[Candidate, Params]:
        """The next draw; its values are feasible."""
        raise NotImplementedError

    def again(self, ticket: int, state: State, candidate: Candidate, params: Params) -> None:
        """The draw was made before."""

    def tell(self, outcome: Outcome, state: State) -> None:
        """A point was judged."""

    def rendered(self, genome: dict[str, str]) -> Candidate:
        return Candidate("cpp", self.space.render(genome), genome=genome, operator=self.name, licence="Apache-2.0")


class RandomSource(Source):
    """Schedules as the space draws them for a first generation, with feasible values drawn evenly."""

    name = "random"

    def point(self, ticket: int, rng: np.random.Generator) -> tuple[Candidate, Params]:
        candidate = self.rendered(self.space.sample(rng, Strategy()))
        return candidate, candidate.space.draw(rng)


class OptunaSource(Source):
    """Optuna's TPE over genes and parameters in one flat space; values that are not feasible become the defaults."""

    name = "optuna"

    def __init__(self, space: ScheduleSpace, seed: int) -> None:
        super().__init__(space, seed)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
        self._trials: dict[int, Any] = {}

    def point(self, ticket: int, rng: np.random.Generator) -> tuple[Candidate, Params]:
        trial = self._trials[ticket] = self._study.ask()
        genes = self.space.genes()
        drawn = {gene: trial.suggest_categorical(gene, values) for gene, values in genes.items()}
        candidate = self.rendered({gene: value for gene, value in drawn.items() if value != genes[gene][0]})
        values = {
            one.name: trial.suggest_categorical(f"{one.name} of {sorted(one.choices)}", sorted(one.choices))
            for one in candidate.space.parameters
        }
        return candidate, candidate.space.inherit(values)

    def again(self, ticket: int, state: State, candidate: Candidate, params: Params) -> None:
        trial, known = self._trials.pop(ticket), state.trial(candidate.id, params)
        if known is None:  # still out, or the same instructions as another kernel's
            self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            self._study.tell(trial, _WORST if known.objective is None else known.objective)

    def tell(self, outcome: Outcome, state: State) -> None:
        if outcome.ticket in self._trials:  # not the plain schedule that every search begins with
            candidate, params = outcome.proposal.candidate, outcome.proposal.params_hint
            self.again(outcome.ticket, state, candidate, params)


class FlatLoop(Loop):
    """The loop with a source in place of emitters, bandit and meta-prompts; nothing is tuned on top."""

    source: Source

    @classmethod
    def of(cls, loop: Loop, source: Source) -> FlatLoop:
        made = cls(**{one.name: getattr(loop, one.name) for one in fields(loop)})
        made.source = source
        made.journey.breadth = 2.0  # of the budget: never tuned
        return made

    def _ask(self, *, busy: bool) -> list[tuple[int, Proposal]]:
        tickets = [self._ticket() for _ in range(self.workers)]
        drawn = [(ticket, self.source.draw(self.state, ticket)) for ticket in tickets]
        return [(ticket, proposal) for ticket, proposal in drawn if proposal is not None]

    def _learn(self, outcome: Outcome) -> None:
        self.source.tell(outcome, self.state)
