"""How candidates travel: what is measured again, and when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from evoforge.campaign._budget import Clock
from evoforge.campaign._events import Narrator
from evoforge.campaign._journey import Journey
from evoforge.campaign._state import State
from evoforge.core import Block, Candidate, Evaluation, Kind, Status, WorkloadTiming
from evoforge.emitters import Proposal
from evoforge.storage import Store


def measured(candidate: Candidate, log2_speedup: float, kind: Kind) -> Evaluation:
    blocks = tuple(Block(process, 1.0, eager_ms=2.0**log2_speedup) for process in range(5))
    timings = (WorkloadTiming("default", "eager", blocks),)
    return Evaluation(candidate.id, {}, "task", "target", Status.CORRECT, kind, timings=timings, cell=(1, 2, 3))


class Forgetful:
    """Where nothing is read back."""

    def record_outcome(self, *words: Any, **more: Any) -> list[int]:
        return []


class Machine:
    """Confirms every candidate at the speed-ups that it was given, one after the other."""

    def __init__(self, heights: Mapping[str, list[float]]) -> None:
        self.heights = heights
        self.confirmed: list[str] = []

    def confirm(self, candidate: Candidate, params: Any, *, both: bool = False, blocks: int = 2) -> Evaluation:
        self.confirmed.append(candidate.source)
        return measured(candidate, self.heights[candidate.source].pop(0), Kind.CONFIRM)


@pytest.fixture(params=["calm first", "storm first"])
def travelled(request: pytest.FixtureRequest) -> tuple[Journey, Machine]:
    """Two candidates of one cell; where the storm comes first it keeps the other from being confirmed."""
    heights = {"// calm": [0.5, 0.5, 0.5, 0.5], "// storm": [1.2, 0.1, 0.1, 0.1]}
    machine = Machine(heights if request.param == "calm first" else dict(reversed(heights.items())))
    state = State(None)
    journey = Journey(
        "c", cast(Store, Forgetful()), state, cast(Any, machine), Narrator(None), Clock(None, None), 0, 0, {}
    )
    for ticket, text in enumerate(machine.heights):
        candidate = Candidate("cpp", text)
        state.propose(ticket, Proposal(candidate, operator="sample", emitter="sample"))
        trial = measured(candidate, machine.heights[text][0], Kind.TRIAL)
        state.note(trial)
        journey.confirm(ticket, candidate, [trial])
    return journey, machine


def test_the_best_is_not_doubted_in_the_round_that_confirmed_it(travelled: tuple[Journey, Machine]) -> None:
    journey, machine = travelled
    before = list(machine.confirmed)
    journey.doubt()
    assert machine.confirmed == before


def test_a_champion_of_a_storm_falls_rounds_later(travelled: tuple[Journey, Machine]) -> None:
    journey, machine = travelled
    champion = journey.state.archive.best()
    assert champion is not None and journey.state.candidates[champion.candidate].source == "// storm"
    journey.doubt()
    journey.doubt()
    champion = journey.state.archive.best()
    assert champion is not None and journey.state.candidates[champion.candidate].source == "// calm"
    for _ in range(10):
        journey.doubt()
    assert max(machine.confirmed.count(text) for text in machine.heights) <= 3, "doubt has an end"
