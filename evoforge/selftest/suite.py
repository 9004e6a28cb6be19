"""Running the fixtures: one judge per task, every kernel through trial and confirmation."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from evoforge.core import Evaluation, Status, Target
from evoforge.errors import EvoforgeError, UsageError, WorkerError
from evoforge.evaluation.judge import Judge
from evoforge.evaluation.runner import LEVELS
from evoforge.evaluation.tasks import load_task
from evoforge.selftest.fixtures import Fixture, load_fixtures, task_path

__all__ = ["BROKEN", "Outcome", "Report", "run_suite"]

BROKEN = "BROKEN"
"""In place of a status: the judge itself failed on this fixture."""

_GAIN = 1.25
_GAIN_TRIES = 5
_CALL_LIMIT_S = 1.0
_COMPILED_S = 120.0
_PROCESSES = 2  # of a confirmation: a verdict is wanted, not a narrow interval
_GAIN_PROCESSES = 5  # where a gain is looked at again


@dataclass(frozen=True)
class Outcome:
    """How one fixture fared once.

    `status` is the judge's, or `BROKEN`. `gain` is how much faster than its twin the judge believed
    it to be, 1 being equal; None unless it has one and both ended CORRECT. `sandbox` is the level reached.
    """

    fixture: Fixture
    status: str
    reason: str
    seconds: float
    gain: float | None = None
    sandbox: str | None = None

    @property
    def refused(self) -> bool:
        """Whether the kernel got nothing: not CORRECT, or believed to be no faster than honest work."""
        return self.status not in (Status.CORRECT, Status.HARNESS_ERROR, BROKEN) or (
            self.gain is not None and self.gain < _GAIN
        )

    @property
    def failed(self) -> bool:
        """An attack that succeeded (or broke the judge), or an honest kernel that was not accepted."""
        return not self.refused if self.fixture.attack else self.status != Status.CORRECT

    @property
    def unexpected(self) -> bool:
        """Whether it needs a look: it failed, or was refused for another reason than the fixture names."""
        return self.failed or (self.status != Status.CORRECT and self.status not in self.fixture.expect)


@dataclass(frozen=True)
class Report:
    """All outcomes, repeats included."""

    outcomes: tuple[Outcome, ...]

    @property
    def attacks(self) -> int:
        return sum(outcome.fixture.attack for outcome in self.outcomes)

    @property
    def succeeded(self) -> int:
        return sum(outcome.failed for outcome in self.outcomes if outcome.fixture.attack)

    @property
    def honest(self) -> int:
        return len(self.outcomes) - self.attacks

    @property
    def rejected(self) -> int:
        return sum(outcome.failed for outcome in self.outcomes if not outcome.fixture.attack)

    @property
    def sandboxes(self) -> tuple[str, ...]:
        """The sandbox levels that runners reached."""
        return tuple(sorted({outcome.sandbox for outcome in self.outcomes if outcome.sandbox}))

    @property
    def holds(self) -> bool:
        return self.succeeded == 0 and self.rejected == 0


def run_suite(
    fixtures: Sequence[Fixture],
    target: Target,
    *,
    sandbox: str = "basic",
    repeat: int = 1,
    seed: int = 0,
    observe: Callable[[Outcome], None] | None = None,
) -> Report:
    """Judges every fixture `repeat` times; a judge that fails on one loses that one only.

    Args:
        seed: of the tasks' weights; inputs are always secret.
        observe: told of every outcome as it comes.

    Raises:
        UsageError: an unknown sandbox level.
    """
    if sandbox not in LEVELS:
        raise UsageError(f"expected --sandbox to be one of {', '.join(LEVELS)}, got {sandbox!r}")
    outcomes: list[Outcome] = []
    for _ in range(repeat):
        for task in sorted({fixture.task for fixture in fixtures}):
            own = [fixture for fixture in fixtures if fixture.task == task]
            for outcome in _run_task(task, own, target, sandbox, seed):
                outcomes.append(outcome)
                if observe is not None:
                    observe(outcome)
    return Report(tuple(outcomes))


def _run_task(task: str, fixtures: Sequence[Fixture], target: Target, sandbox: str, seed: int) -> Iterator[Outcome]:
    left = list(fixtures)
    try:
        with Judge(
            load_task(str(task_path(task))), target, seed=seed, sandbox=sandbox, call_limit_s=_CALL_LIMIT_S
        ) as judge:
            judge.open()
            judge.wait_compiled(_COMPILED_S)
            while left:
                yield _run_one(judge, left[0])
                left.pop(0)
    except Exception as error:  # process boundary: no judge, no verdicts; the other tasks still get theirs
        for fixture in left:
            yield Outcome(fixture, BROKEN, f"the judge could not be opened or closed: {_said(error)}", 0.0)


def _run_one(judge: Judge, fixture: Fixture) -> Outcome:
    began = time.perf_counter()
    try:
        found, gain = _judged(judge, fixture)
    except Exception as error:  # process boundary: a judge that breaks is an outcome of this fixture
        return Outcome(fixture, BROKEN, _said(error), time.perf_counter() - began)
    seconds = time.perf_counter() - began
    # Without a runner the level is only what was asked for.
    ran = found.status not in (Status.SCREENED, Status.BUILD_ERROR, Status.BUILD_TIMEOUT, Status.LOAD_ERROR)
    return Outcome(fixture, str(found.status), found.reason, seconds, gain, found.sandbox if ran else None)


def _judged(judge: Judge, fixture: Fixture) -> tuple[Evaluation, float | None]:
    """The verdict as a search would reach it: a trial, then a confirmation."""
    found = judge.trial(fixture.candidate, {}, wanted_facts=False)
    if found.status is Status.CORRECT:
        found = judge.confirm(fixture.candidate, {}, processes=_PROCESSES)
    if found.status is not Status.CORRECT or fixture.twin is None:
        return found, None
    gain = math.inf
    for at in range(_GAIN_TRIES):  # a gain must show every time: noise does not
        processes = _GAIN_PROCESSES if at else _PROCESSES
        twin = judge.confirm(_twin_of(fixture).candidate, {}, processes=processes)
        if twin.status is not Status.CORRECT:
            raise WorkerError(f"expected its twin {fixture.twin} to be CORRECT, it is {twin.status}: {twin.reason}")
        gain = min(gain, _gain(found, twin))
        if gain < _GAIN:
            break
        again = judge.confirm(fixture.candidate, {}, processes=_GAIN_PROCESSES)
        if again.status is not Status.CORRECT:
            return again, None
        found = again
    return found, gain


def _twin_of(fixture: Fixture) -> Fixture:
    return load_fixtures(f"honest/{fixture.twin}")[0]


def _gain(attack: Evaluation, twin: Evaluation) -> float:
    """How much faster the attack looks: by latency, or by slowing down what it is compared with."""
    latency = (twin.latency_ms or 0.0) / (attack.latency_ms or math.inf)
    return max(latency, (attack.speedup() or 0.0) / (twin.speedup() or math.inf))


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, EvoforgeError) else f"{type(error).__name__}: {error}"
