"""What the loop shows its emitters, and when it has had enough."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from evoforge.campaign import Campaign
from evoforge.campaign._budget import Clock
from evoforge.campaign._desk import Desk
from evoforge.campaign._events import Event, Narrator, Observer
from evoforge.campaign._evolution import Evolution
from evoforge.campaign._journey import Journey
from evoforge.campaign._loop import Loop
from evoforge.campaign._state import State
from evoforge.core import Block, Call, Candidate, Cell, Evaluation, Kind, MetaPrompt, Status, WorkloadTiming
from evoforge.core import Outcome as CallOutcome
from evoforge.emitters import Assignment, Bandit, Emitter, Outcome, Proposal, SearchView
from evoforge.llm import ModelSpec, Request, ScriptedClient
from evoforge.prompts import Brief, PromptPool, Send, TaskBrief
from evoforge.storage import Store

CELL, OTHER = (1, 2, 3), (0, 0, 0)
FIRST = Candidate("cpp", "int x = -1;")


class Machine:
    """The first kernel is twice as fast as the baseline, all others are as fast as it; each takes a millisecond."""

    def __init__(self, bound_ms: float | None = None) -> None:
        self.bound_ms = bound_ms

    def build_ahead(self, jobs: Any) -> None: ...

    def object_hash(self, candidate: Candidate, params: Any) -> None: ...

    def trial(self, candidate: Candidate, params: Any, prune_below: float | None) -> Evaluation:
        return self._measured(candidate, Kind.TRIAL)

    def confirm(self, candidate: Candidate, params: Any, *, both: bool = False, blocks: int = 2) -> Evaluation:
        return self._measured(candidate, Kind.CONFIRM)

    def race(self, kernels: Any, *, limit_s: float) -> list[Evaluation]:
        return []

    def _measured(self, candidate: Candidate, kind: Kind) -> Evaluation:
        faster = 2.0 if candidate.id == FIRST.id else 1.0
        blocks = tuple(Block(process, 1.0, eager_ms=faster) for process in range(5))
        timings = (WorkloadTiming("default", "eager", blocks, self.bound_ms),)
        return Evaluation(candidate.id, {}, "task", "target", Status.CORRECT, kind, timings=timings, cell=CELL)


class Watcher:
    """An emitter that remembers what it was shown, and always has another kernel."""

    name = "sample"

    def __init__(self) -> None:
        self.shown: list[Mapping[Cell, str]] = []
        self.refused: list[tuple[bool, bool]] = []
        self.near: list[bool] = []

    def ready(self, view: SearchView) -> bool:
        return True

    def ask(self, view: SearchView, meta_prompt: MetaPrompt, rng: np.random.Generator) -> Proposal:
        self.shown.append({cell: candidate.source for cell, (_, candidate) in view.elites.items()})
        self.refused.append((view.hopeless({"vector": "scalar"}), view.hopeless({})))
        self.near.append(view.again and not view.reachable)
        return Proposal(Candidate("cpp", f"int x = {len(self.shown)};"), operator="sample", emitter="sample")

    def tell(self, outcome: Outcome) -> None: ...


class Empty:
    """An emitter that never finds a kernel, and counts how often it was asked."""

    name = "aim"

    def __init__(self) -> None:
        self.asked = 0

    def ready(self, view: SearchView) -> bool:
        return True

    def ask(self, view: SearchView, meta_prompt: MetaPrompt, rng: np.random.Generator) -> Proposal | None:
        self.asked += 1
        return None

    def tell(self, outcome: Outcome) -> None: ...


class Broken(Empty):
    """An emitter whose every kernel fails to print."""

    def ask(self, view: SearchView, meta_prompt: MetaPrompt, rng: np.random.Generator) -> None:
        super().ask(view, meta_prompt, rng)
        raise KeyError("axis")


class Riddler(Empty):
    """An emitter whose kernels have no cell that could be told."""

    def ask(self, view: SearchView, meta_prompt: MetaPrompt, rng: np.random.Generator) -> Proposal:
        self.asked += 1
        return Proposal(
            Candidate("cpp", f"int y = {self.asked};", genome={"riddle": "1"}), operator="aim", emitter="aim"
        )


class Told:
    def __init__(self) -> None:
        self.notices: list[str] = []

    def on_event(self, event: Event) -> None:
        if event.kind == "notice":
            self.notices.append(event.data["text"])


class Space:
    """Scalars are known to be slow; the cell of a kernel with a `riddle` cannot be told."""

    def handicaps(self) -> list[Any]:
        return [({"vector": "scalar"}, -4.0)]

    def implied_cell(self, genome: Mapping[str, Any]) -> Cell:
        if "riddle" in genome:
            raise KeyError("riddle")
        return CELL


class Forgetful:
    def record_outcome(self, *words: Any, **more: Any) -> list[int]:
        return []

    def add_meta_prompt(self, *words: Any, **more: Any) -> None:
        pass


def made(
    evals: int, reachable: frozenset[Cell], bound_ms: float | None, *others: Emitter, workers: int = 1,
    observer: Observer | None = None,
) -> tuple[Loop, Watcher]:  # fmt: skip
    watcher, pool = Watcher(), PromptPool(list(PromptPool.default("cpp")))
    journey = Journey(
        campaign="c", store=cast(Store, Forgetful()), state=State(reachable), measurer=cast(Any, Machine(bound_ms)),
        narrator=Narrator(observer), clock=Clock(evals, None), seed=0, trials=0, lead={},
    )  # fmt: skip
    loop = Loop(
        journey=journey, space=cast(Any, Space()), emitters=[*others, watcher], bandit=Bandit(pool.ancestors),
        pool=pool, evolution=Evolution(0, 0, 1e-4, 8), seed=0, workers=workers,
    )  # fmt: skip
    return loop, watcher


def searched(*asked: Any, **more: Any) -> tuple[str, Watcher]:
    loop, watcher = made(*asked, **more)
    return loop.run([Proposal(FIRST, operator="sample", emitter="sample")]), watcher


def test_a_kernel_that_was_cut_off_before_its_confirmation_is_confirmed_on_resume(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, _ = made(1, frozenset({CELL}), None)
    monkeypatch.setattr(loop.journey, "confirm", lambda *_: None)  # the process ends there
    loop.run([Proposal(FIRST, operator="sample", emitter="sample")])
    assert not len(loop.state.archive)
    monkeypatch.undo()
    loop.take_up(0, loop.state.tried(FIRST.id))
    assert [elite.candidate for elite in loop.state.archive] == [FIRST.id]


def test_a_search_without_news_starts_from_nothing_in_turns() -> None:
    reason, watcher = searched(200, frozenset({CELL}), None)
    assert reason == "evals"
    first = [set(shown.values()) == {FIRST.source} for shown in watcher.shown]
    assert first[:63] == [True] * 63
    assert first[63:127] == [False] * 64, "a lineage of its own, for as long as nothing was new"
    assert first[127:191] == [True] * 64
    assert watcher.shown[63] == {}
    lineage = [shown[CELL] for shown in watcher.shown[64:127]]
    assert lineage == ["int x = 64;"] * 63, "what was proposed since; of equal ones the first"


@pytest.mark.parametrize(
    ("bound_ms", "reachable", "kernels"),
    [(0.96, {CELL}, 0), (0.96, {CELL, OTHER}, 63), (0.94, {CELL}, 99), (None, {CELL}, 99)],
)
def test_it_stops_near_the_bound_once_the_map_is_full_or_without_news(
    bound_ms: float | None, reachable: set[Cell], kernels: int
) -> None:
    """By the millisecond that the best kernel takes itself, whatever the baseline took beside it."""
    reason, watcher = searched(100, frozenset(reachable), bound_ms)
    assert reason == ("near the bound" if kernels < 99 else "evals")
    assert len(watcher.shown) == kernels


def test_who_finds_nothing_is_asked_once_a_round() -> None:
    empty = Empty()
    reason, watcher = searched(41, frozenset({CELL, OTHER}), None, empty, workers=4)
    assert (reason, len(watcher.shown)) == ("evals", 40)
    assert 0 < empty.asked <= 10, "while there is an empty cell, three of the four tickets of a round are to aim at it"


def test_a_round_that_found_something_does_not_wait_for_who_finds_nothing() -> None:
    class Scarce(Empty):
        """An emitter that finds a kernel in the first of thirty attempts."""

        def ask(self, view: SearchView, meta_prompt: MetaPrompt, rng: np.random.Generator) -> Proposal | None:
            super().ask(view, meta_prompt, rng)
            text = f"int x = {self.asked};"
            return Proposal(Candidate("cpp", text), operator="aim", emitter="aim") if self.asked % 30 == 1 else None

    scarce, empty = Scarce(), Empty()
    empty.name = "cross"
    loop, _ = made(2, frozenset({CELL}), None, workers=4)
    loop.emitters = [scarce, empty]
    assert loop.run([]) == "evals"
    assert scarce.asked <= 32, "on in the second round, which would have been empty else"


def test_a_round_that_tunes_does_not_wait_for_who_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    empty, tuned = Empty(), [True] * 5
    loop, _ = made(99, frozenset({CELL}), None, workers=4)
    loop.emitters = [empty]
    monkeypatch.setattr(loop.journey, "deepen", lambda drawn=False: bool(tuned) and tuned.pop())
    assert loop.run([Proposal(FIRST, operator="sample", emitter="sample")]) == "space exhausted"
    assert not tuned and empty.asked <= 5 * 2 + 64


def test_kernels_come_again_at_other_values_before_the_space_counts_as_exhausted() -> None:
    """However little of the budget is used, and however long there was no news."""
    values = ", ".join(map(str, range(1, 101)))
    kernel = Candidate("cpp", f"// evoforge: param T = 1 in {{{values}}}\nint x = T;")

    class Valued(Machine):
        def trial(self, candidate: Candidate, params: Any, prune_below: float | None) -> Evaluation:
            return replace(super().trial(candidate, params, prune_below), params=params)

        def confirm(self, candidate: Candidate, params: Any, *, both: bool = False, blocks: int = 2) -> Evaluation:
            return replace(super().confirm(candidate, params), params=params)

    class Known(Empty):
        """An emitter that has no other text."""

        def ask(self, view: SearchView, meta_prompt: MetaPrompt, rng: np.random.Generator) -> Proposal | None:
            super().ask(view, meta_prompt, rng)
            assert view.memory is not None
            left = [one for one in kernel.space.points() if view.again and not view.memory.known(kernel.id, one)]
            return Proposal(kernel, operator="aim", emitter="aim", params_hint=left[0]) if left else None

    loop, _ = made(999, frozenset({CELL}), None)
    loop.emitters, loop.journey.measurer = [Known()], cast(Any, Valued())
    assert loop.run([Proposal(kernel, operator="sample", emitter="sample")]) == "space exhausted"
    assert len(loop.state.tried(kernel.id)) == 100


def test_once_the_map_is_drawn_all_of_a_round_but_the_first_build_on_what_is_near_the_best() -> None:
    _, watcher = searched(41, frozenset({CELL}), None, workers=4)
    rounds = [watcher.near[at : at + 4] for at in range(0, 40, 4)]
    assert rounds == [[False] * 4] * 4 + [[False, True, True, True]] * 6


def test_a_known_kernel_may_come_again_once_a_round_and_its_twin_may_not() -> None:
    class Again(Empty):
        text = FIRST.source

        def ask(self, view: SearchView, meta_prompt: MetaPrompt, rng: np.random.Generator) -> Proposal:
            self.asked += 1
            return Proposal(Candidate("cpp", self.text), operator="aim", emitter="aim")

    again, twin = Again(), Again()
    twin.text = FIRST.source.replace(" ", "  ")
    for emitter, reason in ((again, "evals"), (twin, "space exhausted")):
        loop, _ = made(6, frozenset({CELL}), None, workers=4)
        loop.emitters = [emitter]
        assert loop.run([Proposal(FIRST, operator="sample", emitter="sample")]) == reason
    assert again.asked <= 2 * 5


def test_of_texts_of_one_code_a_round_proposes_the_first() -> None:
    class Verbose(Empty):
        def ask(self, view: SearchView, meta_prompt: MetaPrompt, rng: np.random.Generator) -> Proposal:
            self.asked += 1
            text = f"// Schedule: whatever {self.asked} is, it is void here.\nint x = 0;"
            candidate = Candidate("cpp", text, genome={"void": str(self.asked)})
            return Proposal(candidate, operator="aim", emitter="aim")

    loop, _ = made(9, frozenset({CELL}), None, workers=4)
    loop.emitters = [Verbose()]
    assert loop.run([]) == "space exhausted"
    assert len(loop.state.candidates) == 1


def test_later_on_the_ranking_is_fitted_now_and_then() -> None:
    loop, _ = made(9, frozenset({CELL}), None)
    journey = loop.journey
    assert journey.ranker() is None
    fitted = []
    for number in range(1, 260):
        candidate = Candidate("cpp", f"int x = {number};", genome={"tile": str(number)})
        journey.state.propose(number, Proposal(candidate, operator="sample", emitter="sample"))
        journey.state.note(journey.measurer.trial(candidate, {}, None))
        fitted.append(journey.ranker())
    assert fitted[6] is None and fitted[7] is not None
    assert len({id(one) for one in fitted[7:63]}) == 56, "each evaluation is learned at once"
    assert len({id(one) for one in fitted[127:191]}) == 32, "of more than a hundred, two at a time"
    assert len({id(one) for one in fitted[191:255]}) == 22


def test_what_is_known_to_be_slow_is_refused_from_the_first_round_on_but_for_a_tenth_of_the_tickets() -> None:
    _, watcher = searched(100, frozenset({CELL}), None)
    assert not any(plain for _, plain in watcher.refused)
    scalars = [scalar for scalar, _ in watcher.refused]
    assert True in scalars[:3]
    assert 0.8 < sum(scalars) / len(scalars) < 1.0


@pytest.mark.parametrize(("broken", "what"), [(Broken(), "axis"), (Riddler(), "riddle")])
def test_an_emitter_that_breaks_costs_its_ticket_and_is_told_once(broken: Empty, what: str) -> None:
    told = Told()
    reason, watcher = searched(41, frozenset({CELL, OTHER}), None, broken, workers=4, observer=told)
    assert (reason, len(watcher.shown)) == ("evals", 40)
    assert broken.asked > 1
    assert told.notices == [f"aim broke and its ticket was left out, please report it: KeyError: '{what}'"]


def known(loop: Loop, *genomes: Mapping[str, Any]) -> None:
    """Trials of an earlier run of this search."""
    for number, genome in enumerate(genomes):
        candidate = Candidate("cpp", f"int known = {number};", genome=genome)
        loop.state.propose(number, Proposal(candidate, operator="sample", emitter="sample"))
        loop.state.note(loop.journey.measurer.trial(candidate, {}, None))
    loop.next_ticket = len(genomes)


def test_a_resumed_search_prints_what_is_known_little_by_little_the_latest_first() -> None:
    """A search of weeks knows thousands of kernels, and each takes some milliseconds."""
    printed: list[str] = []
    seen: list[int] = []

    class Printer(Space):
        def implied_cell(self, genome: Mapping[str, Any]) -> Cell:
            printed.extend(genome.values())
            return CELL

    class Counting(Empty):
        def ask(self, view: SearchView, meta_prompt: MetaPrompt, rng: np.random.Generator) -> Proposal:
            seen.append(len(printed))
            return Proposal(Candidate("cpp", f"int y = -{len(seen)};"), operator="aim", emitter="aim")

    loop, _ = made(204, frozenset({CELL}), None)
    loop.emitters, loop.space = [Counting()], cast(Any, Printer())
    known(loop, *({"tile": str(number)} for number in range(200)))
    assert loop.run([]) == "evals"
    assert seen == [64, 128, 192, 200]
    assert printed == [str(number) for number in reversed(range(200))]


def test_a_known_kernel_that_can_be_printed_no_more_ends_no_search() -> None:
    told = Told()
    loop, watcher = made(4, frozenset({CELL}), None, observer=told)
    known(loop, {"riddle": "1"})
    assert loop.run([]) == "evals" and len(watcher.shown) == 3
    assert told.notices == ["a known schedule can be printed no more, please report it: KeyError: 'riddle'"]


class Wordy(Empty):
    """Asks a model about a task that no prompt has room for."""

    name = "invent"

    def assign(self, view: SearchView, meta_prompt: MetaPrompt, rng: np.random.Generator) -> Assignment:
        self.asked += 1
        task = TaskBrief("x = 1\n" * 50_000, {}, "tight", "ieee", "cpp", "contract")
        return Assignment(Brief(self.name, task), self.name)


def test_what_is_too_long_to_be_asked_is_left_out_with_one_notice() -> None:
    told, wordy, client = Told(), Wordy(), ScriptedClient([])
    loop, watcher = made(41, frozenset({CELL, OTHER}), None, workers=4, observer=told)
    loop.writers = (wordy,)
    spec = ModelSpec("openai/free", usd_per_mtok_in=0.0, usd_per_mtok_out=0.0)
    loop.desk = Desk(client, [spec], tokens=24000, send=Send(), at_once=1)
    assert loop.run([Proposal(FIRST, operator="sample", emitter="sample")]) == "evals"
    loop.desk.close()
    assert wordy.asked and not client.requests and len(watcher.shown) == 40
    (notice,) = told.notices
    assert notice.startswith("invent was left out: ") and "raise meta_prompts.tokens" in notice


def test_where_no_prompt_fits_and_there_is_no_generator_no_model_is_left() -> None:
    told, client = Told(), ScriptedClient([])
    loop, _ = made(41, frozenset({CELL}), None, workers=4, observer=told)
    loop.emitters, loop.writers = [], [Wordy()]
    spec = ModelSpec("openai/free", usd_per_mtok_in=0.0, usd_per_mtok_out=0.0)
    loop.desk = Desk(client, [spec], tokens=24000, send=Send(), at_once=1)
    assert loop.run([Proposal(FIRST, operator="sample", emitter="sample")]) == "no model left"
    loop.desk.close()
    assert not client.requests
    assert "models can be asked nothing more: " in told.notices[-1] and "24000 tokens" in told.notices[-1]


class Prose(Empty):
    """Asks models, who answer with prose."""

    name = "invent"

    def assign(self, view: SearchView, meta_prompt: MetaPrompt, rng: np.random.Generator) -> Assignment:
        self.asked += 1
        return Assignment(Brief(self.name, TaskBrief("x = 1\n", {}, "tight", "ieee", "cpp", "contract")), self.name)


@pytest.mark.parametrize(("generator", "ends"), [(True, "evals"), (False, "nothing new from models")])
def test_models_without_news_are_left_out_where_a_generator_goes_on(generator: bool, ends: str) -> None:
    told, prose = Told(), Prose()
    client = ScriptedClient(lambda request: "I would rather not.")

    class Patient(Watcher):
        """Has kernels once the models were left out."""

        def ask(self, view: SearchView, meta_prompt: MetaPrompt, rng: np.random.Generator) -> Proposal:
            return super().ask(view, meta_prompt, rng) if told.notices else cast(Proposal, None)

    loop, _ = made(41, frozenset({CELL}), None, observer=told)
    patient = Patient()
    loop.emitters, loop.writers = [patient] if generator else [], [prose]
    loop.desk = Desk(client, [ModelSpec("openai/free")], tokens=24000, send=Send(), at_once=1)
    assert loop.run([Proposal(FIRST, operator="sample", emitter="sample")]) == ends
    loop.desk.close()
    assert 64 <= len(client.requests) <= 66
    assert len(patient.shown) == (40 if generator else 0)
    assert told.notices == (["models are asked no more: 64 answers in a row led to nothing new"] if generator else [])


def test_models_that_are_left_out_rewrite_no_meta_prompts() -> None:
    told, late = Told(), list[bool]()

    def answer(request: Request) -> str:
        late.append(bool(told.notices))
        return "I would rather not."

    loop, _ = made(41, frozenset({CELL}), None, observer=told)
    loop.emitters, loop.writers = [Watcher()], [Prose()]
    loop.evolution.every = 2
    loop.desk = Desk(ScriptedClient(answer), [ModelSpec("openai/free")], tokens=24000, send=Send(), at_once=1)
    loop._alone = True
    assert loop.run([Proposal(FIRST, operator="sample", emitter="sample")]) == "evals"
    loop.desk.close()
    assert loop.evolution.bred > 4 and not late


def test_a_note_of_what_was_gained_gives_no_reason_of_another_point() -> None:
    loop, _ = made(41, frozenset({CELL}), None)
    right = Machine().trial(FIRST, {}, None)
    slower = replace(right, params={"T": 2}, status=Status.PRUNED, reason="slower")
    confirmed = Machine().confirm(FIRST, {})
    ref = loop.pool.active()[0].ref
    loop.replay(0, Proposal(FIRST, operator="sample", emitter="sample", meta_prompt=ref), [right, slower, confirmed])
    (note,) = loop.pool.evidence(ref).best
    assert note.gain > 0 and note.reason == ""


def test_what_is_too_long_for_one_model_is_asked_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    small, wide = (ModelSpec(f"openai/{name}", usd_per_mtok_in=0.0, usd_per_mtok_out=0.0) for name in ("small", "wide"))
    small = replace(small, max_tokens=1)
    short = Call(None, "invent", small.model, "x" * 64, "s", "u", "", CallOutcome.TOO_LONG, "", 0, 0, 0, 0.0, 0.0)
    client = ScriptedClient(lambda request: "I would rather not.")
    loop, watcher = made(9, frozenset({CELL}), None, workers=4)
    loop.writers = [Prose()]
    loop.desk = Desk(client, [small, wide], tokens=24000, send=Send(), at_once=1, past=[short])
    order = [("invent", small.model), ("invent", wide.model), ("sample", None)]

    def choose(arms: Any, ticket: int, rng: Any) -> Any:
        return min(arms, key=lambda arm: order.index((arm.emitter, arm.model)))

    monkeypatch.setattr(loop.bandit, "choose", choose)
    assert loop.run([Proposal(FIRST, operator="sample", emitter="sample")]) == "evals"
    loop.desk.close()
    assert {request.model for request in client.requests} == {wide.model} and watcher.shown


class Placed(Machine):
    """Kernels with a genome say where they lie and how much faster they are than the baseline, as a log2."""

    def _measured(self, candidate: Candidate, kind: Kind) -> Evaluation:
        found = super()._measured(candidate, kind)
        if candidate.genome is None:
            return found
        cell, _, log2 = candidate.genome["at"].partition(" ")
        blocks = tuple(Block(process, 1.0, eager_ms=2.0 ** float(log2)) for process in range(5))
        timings = (WorkloadTiming("default", "eager", blocks),)
        return replace(found, timings=timings, cell=cast(Cell, tuple(map(int, cell))))


def placed(cell: Cell, log2: float) -> Proposal:
    at = f"{''.join(map(str, cell))} {log2}"
    candidate = Candidate("cpp", f'const char* at = "{at}";', genome={"at": at})
    return Proposal(candidate, operator="sample", emitter="sample")


def test_a_leader_that_the_generator_cannot_build_on_does_not_hide_its_own_best() -> None:
    near, far, behind = (0, 0, 0), (0, 0, 1), (0, 0, 2)
    reachable = frozenset({CELL, near, far, behind})
    loop, watcher = made(41, reachable, None, workers=4)
    loop.journey.measurer = cast(Any, Placed())
    seeds = [placed(near, 0.2), placed(far, 0.0), placed(behind, -0.5)]
    assert loop.run([Proposal(FIRST, operator="import", emitter="import"), *seeds]) == "evals"
    late = [set(shown) for shown, summit in zip(watcher.shown, watcher.near, strict=True) if summit]
    assert late and all(shown == {CELL, near, far} for shown in late)


def test_who_answers_from_outside_always_sees_the_archive() -> None:
    loop, _ = made(80, frozenset({CELL}), None)
    assert loop.run([Proposal(FIRST, operator="sample", emitter="sample")]) == "evals"
    seen: list[list[str]] = []

    class Looking(Prose):
        def assign(self, view: SearchView, meta_prompt: MetaPrompt, rng: np.random.Generator) -> Assignment:
            seen.append([elite.candidate for elite, _ in view.elites.values()])
            return super().assign(view, meta_prompt, rng)

    loop.writers = [Looking()]
    loop.assign(loop.next_ticket, "somebody", None)
    assert seen == [[FIRST.id]]


def test_tuning_an_old_kernel_is_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ticket is the first; it is tuned when 50 others were proposed."""
    loop, watcher = made(140, frozenset({CELL}), None)
    tuned = [replace(Machine()._measured(FIRST, kind), params={"T": 2}) for kind in (Kind.TRIAL, Kind.CONFIRM)]
    faster = tuple(Block(process, 1.0, eager_ms=3.0) for process in range(5))
    tuned = [replace(row, timings=(WorkloadTiming("default", "eager", faster),)) for row in tuned]

    def doubt() -> None:
        if len(watcher.shown) == 50:
            loop.recall(tuned)

    monkeypatch.setattr(loop.journey, "doubt", doubt)
    assert loop.run([Proposal(FIRST, operator="sample", emitter="sample")]) == "evals"
    first = [set(shown.values()) == {FIRST.source} for shown in watcher.shown]
    assert first[:113] == [True] * 113 and not any(first[113:])


@pytest.mark.parametrize(("heights", "refused"), [((-2.7, -2.9), False), ((-2.7, -0.1), True)])
def test_what_is_as_slow_as_all_that_is_known_is_proposed(heights: tuple[float, float], refused: bool) -> None:
    """A quarter of the baseline is out of reach for some tasks at first."""

    class Slow(Watcher):
        def ask(self, view: SearchView, meta_prompt: MetaPrompt, rng: np.random.Generator) -> Proposal:
            self.refused.append((view.hopeless({"at": "123 -2.7"}), False))
            self.shown.append({})
            made = placed(CELL, heights[len(self.shown) % 2])
            return replace(made, candidate=replace(made.candidate, source=f"int y = {len(self.shown)};"))

    loop, _ = made(40, frozenset({CELL}), None)
    slow = Slow()
    loop.emitters, loop.journey.measurer = [slow], cast(Any, Placed())
    assert loop.run([]) == "evals"
    assert any(one for one, _ in slow.refused) == refused


def test_what_the_textbook_gained_is_no_emitters_merit() -> None:
    config = {"name": "c", "task": "t.py"}
    row: Any = SimpleNamespace(config=config, setup={"seeds": ["// mine"]})
    plain = Candidate("cpp", "// plain", genome={"a": 1}, operator="sample")
    ground: Any = SimpleNamespace(space=Space(), first_kernels=lambda: [plain])
    campaign = Campaign(row, cast(Store, None), replay=None, replay_extend=False)
    seeds = campaign._seeds(ground, ())
    assert [(seed.emitter, seed.operator) for seed in seeds] == [("import", "import"), ("textbook", "sample")]
