"""How candidates travel: what is measured again, and when."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from evoforge.archives import racers
from evoforge.campaign._budget import Clock
from evoforge.campaign._events import Event, Narrator
from evoforge.campaign._journey import Journey
from evoforge.campaign._state import State
from evoforge.core import Block, Candidate, Evaluation, Kind, Status, WorkloadTiming
from evoforge.emitters import Proposal
from evoforge.errors import WorkerError
from evoforge.storage import Store


def measured(candidate: Candidate, log2_speedup: float, kind: Kind) -> Evaluation:
    blocks = tuple(Block(process, 1.0, eager_ms=2.0**log2_speedup) for process in range(5))
    timings = (WorkloadTiming("default", "eager", blocks),)
    return Evaluation(candidate.id, {}, "task", "target", Status.CORRECT, kind, timings=timings, cell=(1, 2, 3))


def spread(candidate: Candidate, log2_speedup: float, kind: Kind) -> Evaluation:
    """As `measured`, with an interval of some width."""
    blocks = tuple(Block(process, 1.0, eager_ms=2.0 ** (log2_speedup + 0.05 * (process - 2))) for process in range(5))
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

    def race(self, kernels: Any, *, limit_s: float) -> list[Evaluation]:
        return []


@pytest.fixture(params=["calm first", "storm first"])
def travelled(request: pytest.FixtureRequest) -> tuple[Journey, Machine]:
    """Two candidates of one cell; where the storm comes first it keeps the other from being confirmed."""
    heights = {"// calm": [0.5, 0.5, 0.5, 0.5], "// storm": [1.2, 0.1, 0.1, 0.1]}
    machine = Machine(heights if request.param == "calm first" else dict(reversed(heights.items())))
    state = State(None)
    journey = Journey(
        "c", cast(Store, Forgetful()), state, cast(Any, machine), Narrator(None), Clock(None, None), {}, 0, 0
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


def test_where_the_best_falls_nobody_is_confirmed_who_looked_slower_still() -> None:
    machine = Machine({"// elite": [1.0, 1.0, 0.8, 0.8, 0.8], "// slower": [0.5] * 9})
    journey = Journey(
        "c", cast(Store, Forgetful()), State(None), cast(Any, machine), Narrator(None), Clock(None, None), {}, 0, 0
    )
    for ticket, text in enumerate(machine.heights):
        candidate = Candidate("cpp", text)
        journey.state.propose(ticket, Proposal(candidate, operator="sample", emitter="sample"))
        trial = measured(candidate, machine.heights[text].pop(0), Kind.TRIAL)
        journey.state.note(trial)
        journey.confirm(ticket, candidate, [trial])
    for _ in range(4):
        journey.doubt()
    assert machine.confirmed == ["// elite"] * 3


@pytest.mark.parametrize(
    ("second", "champion", "times"), [(1.05, "// challenger", 2), (0.6, "// incumbent", 2), (None, "// challenger", 1)]
)
def test_who_wins_narrowly_is_measured_a_second_time(second: float | None, champion: str, times: int) -> None:
    """The first time may have been a lucky one. None: it wins by far, so that once is enough."""
    state = State(None)
    heights = {
        "// incumbent": [1.0, 1.0, 1.0],
        "// challenger": [1.05 if second else 2.0, second or 2.0, second or 2.0],
    }

    class Noisy(Machine):
        def confirm(self, candidate: Candidate, params: Any, *, both: bool = False, blocks: int = 2) -> Evaluation:
            self.confirmed.append(candidate.source)
            return spread(candidate, self.heights[candidate.source].pop(0), Kind.CONFIRM)

    machine = Noisy(heights)
    journey = Journey(
        "c", cast(Store, Forgetful()), state, cast(Any, machine), Narrator(None), Clock(None, None), {}, 0, 0
    )
    for ticket, text in enumerate(heights):
        candidate = Candidate("cpp", text)
        state.propose(ticket, Proposal(candidate, operator="sample", emitter="sample"))
        trial = measured(candidate, heights[text][0], Kind.TRIAL)
        state.note(trial)
        journey.confirm(ticket, candidate, [trial])
    best = state.archive.best()
    assert best is not None and state.candidates[best.candidate].source == champion
    assert machine.confirmed.count("// challenger") >= times


def test_once_time_is_up_what_is_confirmed_is_confirmed_once() -> None:
    candidate = Candidate("cpp", "// late")
    machine = Machine({"// late": [0.5] * 9})
    journey = Journey(
        "c",
        cast(Store, Forgetful()),
        State(None),
        cast(Any, machine),
        Narrator(None),
        Clock(None, 60.0, 61.0),
        {},
        0,
        0,
    )
    journey.state.propose(0, Proposal(candidate, operator="sample", emitter="sample"))
    trials = [replace(measured(candidate, 0.5, Kind.TRIAL), params={"T": at}, cell=(at, 0, 0)) for at in range(3)]
    for trial in trials:
        journey.state.note(trial)
    journey.confirm(0, candidate, list(trials))
    assert machine.confirmed == ["// late"]


class Compiler:
    """Whatever it is, it is one program, and a right one, unless a tile is a parameter of another value than 8."""

    def build_ahead(self, jobs: Any) -> None: ...

    def object_hash(self, candidate: Candidate, params: Any) -> str:
        return f"tile {params['T'] if '= T' in candidate.source else 8}"

    def trial(self, candidate: Candidate, params: Any, prune_below: float | None) -> Evaluation:
        return replace(measured(candidate, 0.5, Kind.TRIAL), params=params)

    def confirm(self, candidate: Candidate, params: Any, *, both: bool = False, blocks: int = 2) -> Evaluation:
        return replace(measured(candidate, 0.5, Kind.CONFIRM), params=params)

    def race(self, kernels: Any, *, limit_s: float) -> list[Evaluation]:
        return []


class Tiled(Compiler):
    """The larger the tile the faster."""

    def __init__(self) -> None:
        self.confirmed: list[Any] = []

    def trial(self, candidate: Candidate, params: Any, prune_below: float | None) -> Evaluation:
        return self._measured(candidate, params, Kind.TRIAL)

    def confirm(self, candidate: Candidate, params: Any, *, both: bool = False, blocks: int = 2) -> Evaluation:
        self.confirmed.append(params)
        return self._measured(candidate, params, Kind.CONFIRM)

    def _measured(self, candidate: Candidate, params: Any, kind: Kind) -> Evaluation:
        return replace(measured(candidate, params.get("T", 8) / 100, kind), params=params)


def test_what_was_parametrised_is_tuned_before_it_meets_its_parent() -> None:
    """As it comes it is its parent once more; nothing else is tuned yet."""
    machine = Tiled()
    journey = Journey(
        "c", cast(Store, Forgetful()), State(None), cast(Any, machine), Narrator(None), Clock(None, None), {}, 0, 4
    )
    parent = Candidate("cpp", "int tile = 8;")
    journey.travel(0, Proposal(parent, operator="invent", emitter="invent"))
    child = Candidate("cpp", "// evoforge: param T = 8 in {4, 8, 16, 32}\nint tile = T;", parents=(parent.id,))
    journey.travel(1, Proposal(child, operator="parametrise", emitter="parametrise"))
    best = journey.state.archive.best()
    assert best is not None and (best.candidate, best.params) == (child.id, {"T": 32})
    assert machine.confirmed == [{}, {"T": 32}]


def test_a_kernel_that_comes_again_is_tuned_by_no_more_trials_than_it_may_have() -> None:
    journey = Journey(
        "c", cast(Store, Forgetful()), State(None), cast(Any, Tiled()), Narrator(None), Clock(None, None), {}, 0, 2,
        breadth=0.0,
    )  # fmt: skip
    choices = ", ".join(map(str, range(1, 17)))
    candidate = Candidate("cpp", f"// evoforge: param T = 1 in {{{choices}}}\nint tile = T;")
    trials = []
    for ticket in range(3):
        new = next(values for values in candidate.space.points() if not journey.state.known(candidate.id, values))
        proposal = Proposal(candidate, operator="mutate", emitter="mutate", params_hint=new)
        trials.append(len(journey.travel(ticket, proposal).statuses))
    assert trials == [3, 1, 1]


@pytest.mark.parametrize(
    ("ends", "claimed"),
    [
        ([Status.TIMING_SUSPECT], True),
        ([Status.HARNESS_ERROR], True),
        ([Status.CORRECT, Status.TIMING_SUSPECT], True),
        ([Status.TIMING_SUSPECT, Status.TIMING_SUSPECT], False),
    ],
)
def test_a_confirmation_that_says_nothing_of_the_kernel_is_made_again(ends: list[Status], claimed: bool) -> None:
    """Of a challenger or of the best that is doubted; three times in all, and most of them have to go well."""
    left, confirmed = list(ends), 0

    class Storm(Compiler):
        def confirm(self, candidate: Candidate, params: Any, *, both: bool = False, blocks: int = 2) -> Evaluation:
            nonlocal confirmed
            confirmed += 1
            status = left.pop(0) if left else Status.CORRECT
            if status is not Status.CORRECT:
                return Evaluation(candidate.id, params, "task", "target", status, Kind.CONFIRM, reason="a storm")
            return super().confirm(candidate, params, both=both, blocks=blocks)

    journey = Journey(
        "c", cast(Store, Forgetful()), State(None), cast(Any, Storm()), Narrator(None), Clock(None, None), {}, 0, 0
    )
    journey.travel(0, Proposal(Candidate("cpp", "int it;"), operator="sample", emitter="sample"))
    for _ in range(4):
        journey.doubt()
    assert (confirmed, len(journey.state.archive)) == (3, int(claimed))


def test_a_kernel_whose_constants_became_parameters_is_no_duplicate_of_itself() -> None:
    journey = Journey(
        "c", cast(Store, Forgetful()), State(None), cast(Any, Compiler()), Narrator(None), Clock(None, None), {}, 0, 0
    )
    header = "// evoforge: param T = 8 in {4, 8}\n"
    texts = ["int tile = 8;", header + "int tile = T;", header + "int tile = 8;", "int other_name = 8; // the same"]
    outcomes = [
        journey.travel(ticket, Proposal(Candidate("cpp", text), operator="improve", emitter="improve"))
        for ticket, text in enumerate(texts)
    ]
    assert [outcome.statuses for outcome in outcomes] == [
        (Status.CORRECT,), (Status.CORRECT,), (Status.DUPLICATE,), (Status.DUPLICATE,),
    ]  # fmt: skip


def test_a_kernel_that_comes_again_pays_no_second_time_for_a_program() -> None:
    journey = Journey(
        "c", cast(Store, Forgetful()), State(None), cast(Any, Compiler()), Narrator(None), Clock(None, None), {}, 0, 0
    )
    header = "// evoforge: param T = 8 in {4, 8}\n// evoforge: param IDLE = 1 in {1, 2}\n"
    candidate = Candidate("cpp", f"{header}int tile = T;")
    ended = []
    for ticket, (tile, idle) in enumerate(((8, 1), (8, 2), (4, 2))):
        hint = {"T": tile, "IDLE": idle}
        proposal = Proposal(candidate, operator="mutate", emitter="mutate", params_hint=hint)
        ended += journey.travel(ticket, proposal).statuses
    assert ended == [Status.CORRECT, Status.DUPLICATE, Status.CORRECT] and journey.state.spent == 2
    assert journey.state.same(candidate.id) == [({"T": 8, "IDLE": 2}, journey.state.tried(candidate.id)[0])]


def test_tuning_pays_no_second_time_for_a_program() -> None:
    """Of 4 × 3 settings those of a tile make four programs; the other parameter changes nothing."""
    judged: list[dict[str, int]] = []

    class Machine(Compiler):
        def trial(self, candidate: Candidate, params: Any, prune_below: float | None) -> Evaluation:
            judged.append(params)
            return super().trial(candidate, params, prune_below)

    journey = Journey(
        "c", cast(Store, Forgetful()), State(None), cast(Any, Machine()), Narrator(None), Clock(None, None), {}, 0, 12
    )
    header = "// evoforge: param T = 8 in {4, 8, 16, 32}\n// evoforge: param IDLE = 1 in {1, 2, 3}\n"
    proposal = Proposal(Candidate("cpp", f"{header}int tile = T;"), operator="sample", emitter="sample")
    journey.breadth = 0.0
    journey.travel(0, proposal)
    for _ in range(9):
        journey.deepen(drawn=True)
    assert sorted(params["T"] for params in judged) == [4, 8, 16, 32]


def test_settings_have_to_beat_what_was_confirmed_and_no_lucky_trial() -> None:
    """A kernel's first trial fell in a minute in which the baseline was slow."""
    limits: list[float | None] = []

    class Machine(Compiler):
        def trial(self, candidate: Candidate, params: Any, prune_below: float | None) -> Evaluation:
            limits.append(prune_below)
            return replace(measured(candidate, 0.9 if len(limits) > 1 else 1.3, Kind.TRIAL), params=params)

        def confirm(self, candidate: Candidate, params: Any, *, both: bool = False, blocks: int = 2) -> Evaluation:
            return replace(measured(candidate, 0.7, Kind.CONFIRM), params=params)

    journey = Journey(
        "c", cast(Store, Forgetful()), State(None), cast(Any, Machine()), Narrator(None), Clock(None, None), {}, 0, 2
    )
    candidate = Candidate("cpp", "// evoforge: param T = 8 in {4, 8, 16}\nint tile = T;")
    journey.travel(0, Proposal(candidate, operator="sample", emitter="sample"))
    assert len(limits) == 1 and len(journey.state.archive) == 1
    assert journey.deepen(drawn=True)
    assert limits[1:] == pytest.approx([0.7, 0.9])


def test_a_stored_text_whose_header_is_read_no_more_is_tuned_no_more() -> None:
    """An earlier version took it; the campaign that holds it goes on."""
    journey = Journey(
        "c", cast(Store, Forgetful()), State(None), cast(Any, Course()), Narrator(None), Clock(None, None), {}, 0, 12,
        breadth=0.0,
    )  # fmt: skip
    header = "\n// evoforge: param A = 1 in {1, 2}\n// evoforge: require A == 1 or B == 2\n"
    stored = Proposal(Candidate("cpp", f"// 1.0 {header}"), operator="improve", emitter="improve")
    assert journey.start(stored) is None
    assert journey.travel(0, stored).statuses == (Status.CORRECT,)
    assert len(journey.state.archive) == 1 and not journey.deepen(drawn=True)


def test_a_program_that_is_met_again_takes_no_trial_of_its_slice() -> None:
    """Two trials at a time, of two programs at six settings: one is the first, and five cost one trial."""
    journey = Journey(
        "c", cast(Store, Forgetful()), State(None), cast(Any, Compiler()), Narrator(None), Clock(None, None), {}, 0, 12,
        breadth=0.0,
    )  # fmt: skip
    header = "// evoforge: param T = 8 in {4, 8}\n// evoforge: param IDLE = 1 in {1, 2, 3}\n"
    candidate = Candidate("cpp", f"{header}int tile = T;")
    outcome = journey.travel(0, Proposal(candidate, operator="sample", emitter="sample"))
    assert outcome.statuses.count(Status.DUPLICATE) == 4 and journey.state.spent == 2
    assert all(journey.state.known(candidate.id, values) for values in candidate.space.points())


def test_few_settings_are_all_tried_without_a_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as there are trials in all, though they come two at a time."""
    import optuna

    made: list[object] = []
    create = optuna.create_study
    monkeypatch.setattr(optuna, "create_study", lambda **given: made.append(given) or create(**given))
    for trials in (8, 6):
        journey = Journey(
            "c", cast(Store, Forgetful()), State(None), cast(Any, Compiler()), Narrator(None), Clock(None, None), {},
            0, trials, breadth=0.0,
        )  # fmt: skip
        header = f"// evoforge: param T = 8 in {{{', '.join(map(str, range(1, 9)))}}}\n"
        journey.travel(0, Proposal(Candidate("cpp", f"{header}int tile = T;"), operator="sample", emitter="sample"))
        while journey.deepen(drawn=True):
            pass
        assert journey.state.spent == min(8, trials + 1)
        assert bool(made) == (trials < 7)


class Broken(Compiler):
    """Judges what it is told to; the rest of the time the disk is full."""

    def __init__(self, judged: Collection[str] = ()) -> None:
        self.judged = judged

    def trial(self, candidate: Candidate, params: Any, prune_below: float | None) -> Evaluation:
        if candidate.source in self.judged:
            return super().trial(candidate, params, prune_below)
        return Evaluation(candidate.id, params, "task", "target", Status.HARNESS_ERROR, reason="no room")


def test_a_judge_that_fails_over_and_over_ends_the_search() -> None:
    machine = Broken(judged=["// 5"])
    journey = Journey(
        "my c", cast(Store, Forgetful()), State(None), cast(Any, machine), Narrator(None), Clock(None, None), {}, 0, 0
    )
    ended: dict[int, tuple[Status, ...]] = {}
    with pytest.raises(WorkerError, match=r"no room; once that is mended: evoforge resume 'my c'"):
        for at in range(99):
            proposal = Proposal(Candidate("cpp", f"// {at}"), operator="sample", emitter="sample")
            ended[at] = journey.travel(at, proposal).statuses
    assert len(ended) == 5 + 1 + 7 and journey.state.spent == 1
    assert ended[5] == (Status.CORRECT,), "it compiles to what others did, of whom nothing is known"


@pytest.mark.parametrize(("bad", "told"), [(1, 0), (9, 1)])
def test_a_last_measurement_that_cannot_be_timed_is_made_again_and_told(bad: int, told: int) -> None:
    notices: list[str] = []

    class Suspect(Compiler):
        left = bad

        def confirm(self, candidate: Candidate, params: Any, *, both: bool = False, blocks: int = 2) -> Evaluation:
            if both and self.left:
                self.left -= 1
                suspect = Status.TIMING_SUSPECT
                return Evaluation(candidate.id, params, "task", "target", suspect, Kind.BENCH, reason="a storm")
            return super().confirm(candidate, params, both=both, blocks=blocks)

    journey = Journey(
        "c", cast(Store, Forgetful()), State(None), cast(Any, Suspect()), Narrator(None), Clock(None, None), {}, 0, 0,
        notice=notices.append,
    )  # fmt: skip
    journey.travel(0, Proposal(Candidate("cpp", "int it;"), operator="sample", emitter="sample"))
    journey.finish()
    assert (journey.report is None, len(notices)) == (bool(told), told)
    assert all("a storm" in text for text in notices)


def test_what_is_told_of_the_map_is_the_map(
    travelled: tuple[Journey, Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elites that fall included: the champion of a storm is replaced, then refuted in the last measurement."""
    journey, machine = travelled
    told: list[dict[tuple[int, ...], float]] = []

    class Panel:
        def on_event(self, event: Event) -> None:
            if event.kind == "progress":
                told.append(dict(event.data["cells"]))

    journey.narrator = Narrator(Panel())
    journey.show("searching")
    (champion,) = journey.state.archive
    assert told[-1] == {champion.cell: champion.objective}, "of a search that was restored, too"
    while journey.state.archive.best() == champion:
        journey.doubt()
    assert told[-1] == {elite.cell: elite.objective for elite in journey.state.archive} != told[0]

    def refuted(candidate: Candidate, params: Any, **_: Any) -> Evaluation:
        return Evaluation(candidate.id, {}, "task", "target", Status.WRONG, Kind.BENCH, reason="off")

    monkeypatch.setattr(machine, "confirm", refuted)
    journey.finish()
    assert told[-1] == {} and len(journey.state.archive) == 0


class Course(Compiler):
    """Confirms by texts of the form ``// objective milliseconds``; a race tells the milliseconds."""

    def __init__(self) -> None:
        self.ran: list[list[str]] = []

    def object_hash(self, candidate: Candidate, params: Any) -> str:
        return candidate.id

    def trial(self, candidate: Candidate, params: Any, prune_below: float | None) -> Evaluation:
        return self.confirm(candidate, params, kind=Kind.TRIAL)

    def confirm(
        self, candidate: Candidate, params: Any, *, both: bool = False, blocks: int = 2, kind: Kind = Kind.CONFIRM
    ) -> Evaluation:
        flags = ("prepacked",) if "packs" in candidate.source else ()
        found = spread(candidate, float(candidate.source.split()[1]), Kind.BENCH if both else kind)
        seconds = {"time": 5.0 if "slow" in candidate.source else 0.1}
        return replace(found, cell=(len(candidate.source.split()) % 4, 0, 0), flags=flags, seconds=seconds)

    def race(self, kernels: Any, *, limit_s: float) -> list[Evaluation]:
        self.ran.append([candidate.source for candidate, _ in kernels])
        timed = [
            (candidate.id, params, tuple(Block(at, float(candidate.source.split()[2])) for at in range(4)))
            for candidate, params in kernels
        ]
        return [
            Evaluation(
                name, params, "task", "target", Status.CORRECT, Kind.RACE, facts=racers(kernels),
                timings=(WorkloadTiming("default", "eager", blocks),),
            )
            for name, params, blocks in timed
        ]  # fmt: skip


def course(*texts: str, clock: Clock | None = None) -> tuple[Journey, Course]:
    machine, clock = Course(), clock or Clock(None, None)
    journey = Journey("c", cast(Store, Forgetful()), State(None), cast(Any, machine), Narrator(None), clock, {}, 0, 0)
    for ticket, text in enumerate(texts):
        journey.travel(ticket, Proposal(Candidate("cpp", text), operator="sample", emitter="sample"))
    journey.finish()
    return journey, machine


def test_in_the_end_the_best_are_raced_and_the_winner_is_reported() -> None:
    texts = ["// 1.0 2.0", "// 0.8 1.5 second cell", "// 0.2 1.0 is far behind"]
    journey, machine = course(*texts)
    assert machine.ran == [texts[:2]]
    best = journey.state.archive.best()
    assert best is not None and journey.state.candidates[best.candidate].source == texts[1]
    assert journey.report is not None and journey.report.candidate == best.candidate
    told = [one.objective for one in journey.state.archive if one.candidate != best.candidate]
    assert best.objective - max(told) == pytest.approx(math.log2(2.0 / 1.5))


def test_who_packs_weights_races_with_its_like() -> None:
    _, machine = course("// 1.0 2.0 packs", "// 0.9 1.5", "// 0.8 1.0 packs as well")
    assert machine.ran == [["// 1.0 2.0 packs", "// 0.8 1.0 packs as well"]]


def test_of_slow_kernels_as_many_race_as_can_run_a_lap_in_time() -> None:
    """A second per process, four rounds to a lap; 20 s of an hour, 10 s of 150."""
    texts = [f"// {1.0 - at / 100} 2.0 slow {'word ' * at}" for at in range(4)]
    _, machine = course(*texts, clock=Clock(None, 3600.0))
    assert [len(ran) for ran in machine.ran] == [4]
    _, machine = course(*texts, clock=Clock(None, 150.0))
    assert [len(ran) for ran in machine.ran] == [2]


def test_one_kernel_needs_no_race() -> None:
    _, machine = course("// 1.0 2.0")
    assert machine.ran == []
