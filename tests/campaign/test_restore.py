"""A search that is told again is the search that it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evoforge.campaign._asked import read_reply
from evoforge.campaign._budget import Clock
from evoforge.campaign._events import Narrator
from evoforge.campaign._evolution import Evolution
from evoforge.campaign._journey import Journey
from evoforge.campaign._loop import Loop
from evoforge.campaign._measure import Recorded
from evoforge.campaign._restore import restore
from evoforge.campaign._state import State
from evoforge.core import (
    Block,
    Candidate,
    Cell,
    Evaluation,
    Kind,
    Outcome,
    Status,
    Target,
    Task,
    Workload,
    WorkloadTiming,
)
from evoforge.emitters import Bandit, Proposal
from evoforge.prompts import PromptPool
from evoforge.storage import Store, open_store
from evoforge.testing.store_suite import a_call, a_ticket

TASK, TARGET = Task("t", "x = 1", (Workload("default"),)), Target("cpu", "cpu", 1, "native", {})
HEADER = "// evoforge: param T = 1 in {1, 2}\n// "
OLD, YOUNG = Candidate("cpp", HEADER + "old"), Candidate("cpp", HEADER + "young")
HERE, THERE = (1, 1, 1), (2, 1, 1)


class Machine:
    """OLD lies in one cell at T=1 and in YOUNG's at T=2, hardly slower than YOUNG there."""

    def build_ahead(self, jobs: Any) -> None: ...

    def object_hash(self, candidate: Candidate, params: Any) -> str | None:
        return None

    def trial(self, candidate: Candidate, params: Mapping[str, int], prune_below: float | None) -> Evaluation:
        return self._measured(candidate, params, Kind.TRIAL)

    def confirm(
        self, candidate: Candidate, params: Mapping[str, int], *, both: bool = False, blocks: int = 2
    ) -> Evaluation:
        return self._measured(candidate, params, Kind.CONFIRM)

    def race(self, kernels: Any, *, limit_s: float) -> list[Evaluation]:
        return []

    def _measured(self, candidate: Candidate, params: Mapping[str, int], kind: Kind) -> Evaluation:
        at: tuple[float, Cell] = (0.98, THERE) if params["T"] == 2 else (1.0, HERE if candidate.id == OLD.id else THERE)
        blocks = tuple(Block(process, 1.0, eager_ms=2.0 ** (at[0] + 0.05 * (process - 2))) for process in range(5))
        return Evaluation(
            candidate.id, params, TASK.id, TARGET.id, Status.CORRECT, kind,
            timings=(WorkloadTiming("default", "eager", blocks),), cell=at[1], seconds={"time": 1.0},
        )  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        opened.create_campaign(
            "c", task=TASK, target=TARGET, language="cpp", seed=0, config={}, descriptor={}, setup={}
        )
        yield opened


def search(store: Store) -> Loop:
    pool = PromptPool(list(PromptPool.default("cpp")))
    journey = Journey(
        campaign="c", store=store, state=State(frozenset({HERE, THERE})), measurer=Machine(), narrator=Narrator(None),
        clock=Clock(None, None), seed=0, trials=2, lead={}, breadth=1.0,
    )  # fmt: skip
    return Loop(
        journey=journey, space=None, emitters=(), bandit=Bandit(pool.ancestors), pool=pool,
        evolution=Evolution(0, 0, 1e-4, 8), seed=0, workers=2,
    )  # fmt: skip


def at(number: int) -> Candidate:
    return Candidate("cpp", HEADER + f"kernel {number}")


def view(loop: Loop) -> Any:
    state = loop.state
    return state.archive.elites(), state.trials, dict(state.confirmations), state.spent, state.tickets


def told(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the bandit will be told."""
    heard: list[Any] = []
    monkeypatch.setattr(loop.bandit, "tell", heard.append)
    return heard


def test_what_an_old_ticket_did_to_a_younger_elite_comes_after_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OLD is tuned after YOUNG came, and its new point is measured against YOUNG: under OLD's ticket."""
    loop = search(store)
    live = told(loop, monkeypatch)
    for ticket, candidate in ((3, OLD), (50, YOUNG)):
        proposal = Proposal(candidate, "sample", "sample", params_hint={"T": 1})
        loop._learn(loop.journey.travel(ticket, proposal))
    loop.journey.breadth = 0.0
    assert loop.journey.deepen()
    rows = store.evaluations(campaign="c")
    assert any(row.ticket == 3 and row.evaluation.candidate == YOUNG.id for row in rows), "else this shows nothing"
    again = search(store)
    heard = told(again, monkeypatch)
    restore(again, store, "c")
    assert view(again) == view(loop)
    assert [(o.ticket, o.gain, o.cost_s, o.statuses) for o in heard] == [
        (o.ticket, o.gain, o.cost_s, o.statuses) for o in live
    ]
    assert again.next_ticket == 51


def test_a_search_that_finds_no_more_kernels_tunes_the_best_before_it_ends(store: Store) -> None:
    """However much of the budget is left: the map is drawn."""
    loop = search(store)
    reason = loop.run([Proposal(OLD, "sample", "sample", params_hint={"T": 1})])
    assert reason == "no generator" and {row.params["T"] for row in loop.state.trials.values()} == {1, 2}


def test_a_search_whose_models_are_refused_says_so_at_once(store: Store) -> None:
    loop = search(store)
    desk: Any = SimpleNamespace(collect=list, waiting=False, models=(), alive=(), wake=bool, spent="", out=frozenset())
    loop.desk = desk
    reason = loop.run([Proposal(OLD, "sample", "sample", params_hint={"T": 1})])
    assert reason == "no model left" and len(loop.state.trials) == 1


def test_the_last_measurements_of_a_search_took_nothing_of_its_budget(store: Store) -> None:
    loop = search(store)
    loop.state.propose(0, Proposal(OLD, "sample", "sample"))
    for kind, spent in ((Kind.RACE, 0.0), (Kind.BENCH, 0.0), (Kind.CONFIRM, 7.0)):
        loop.recall([Evaluation(OLD.id, {"T": 1}, "t", "cpu", Status.UNMEASURED, kind, seconds={"time": 7.0})])
        assert loop.journey.clock.recorded_s == spent


def test_tuning_right_after_its_own_proposal_is_no_part_of_its_outcome(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of another ticket lies between the two."""
    loop = search(store)
    live = told(loop, monkeypatch)
    loop._learn(loop.journey.travel(0, Proposal(OLD, "sample", "sample", params_hint={"T": 1})))
    loop.journey.breadth = 0.0
    assert loop.journey.deepen() and len(loop.state.trials) == 2
    again = search(store)
    heard = told(again, monkeypatch)
    restore(again, store, "c")
    assert view(again) == view(loop)
    assert [(o.gain, o.cost_s, o.statuses) for o in heard] == [(o.gain, o.cost_s, o.statuses) for o in live]


def test_only_trials_that_nothing_followed_may_have_been_cut_off(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both of YOUNG's points lie in one cell; the faster is confirmed, the other need not be: not on resume either."""
    loop = search(store)
    loop.journey.breadth = 0.0
    proposal = Proposal(YOUNG, "sample", "sample", params_hint={"T": 1})
    loop._learn(loop.journey.travel(0, proposal))
    assert len(loop.state.trials) == 2 and len(loop.state.confirmations) == 1
    assert not restore(search(store), store, "c").unconfirmed
    other = search(store)
    monkeypatch.setattr(other.journey, "confirm", lambda *_: None)  # the process ends there
    restore(other, store, "c")
    other._learn(other.journey.travel(1, Proposal(OLD, "sample", "sample", params_hint={"T": 1})))
    again = search(store)
    (cut_off,) = restore(again, store, "c").unconfirmed
    assert cut_off[0] == 1 and {row.candidate for row in cut_off[1]} == {OLD.id} and len(cut_off[1]) == 1
    again.take_up(*cut_off)
    assert again.state.archive.get(HERE) is not None


@pytest.mark.parametrize("reading", ["evaluations", "tickets", "calls", "proposals", "candidates"])
def test_a_search_can_be_read_while_it_goes_on(store: Store, monkeypatch: pytest.MonkeyPatch, reading: str) -> None:
    """As a preview of what would be asked is: something is stored after the first, the second, … of its reads."""
    judged(store, 0, OLD)
    read = getattr(store, reading)

    def read_meanwhile(*given: Any, **options: Any) -> Any:
        monkeypatch.setattr(store, reading, read)
        found = read(*given, **options)
        judged(store, 1, YOUNG)
        return found

    monkeypatch.setattr(store, reading, read_meanwhile)
    loop = search(store)
    restore(loop, store, "c")
    assert loop.state.archive.get(HERE) is not None and loop.next_ticket == 2


def judged(store: Store, ticket: int, candidate: Candidate) -> None:
    """By a process of its own."""
    loop = search(store)
    loop.journey.breadth = 0.0
    restore(loop, store, "c")
    loop._learn(loop.journey.travel(ticket, Proposal(candidate, "sample", "sample", params_hint={"T": 1})))


@pytest.mark.parametrize("answered", [True, False], ids=["an answer and a bench came after", "an answer cut off, too"])
def test_a_confirmation_that_was_cut_off_is_caught_up_whatever_was_stored_since(
    store: Store, monkeypatch: pytest.MonkeyPatch, answered: bool
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Journey, "confirm", lambda *_: None)  # the processes end there
        judged(store, 0, OLD)
        store.issue_ticket("c", a_ticket(1))
        if not answered:
            judged(store, 1, YOUNG)
    if answered:
        judged(store, 1, YOUNG)
        store.settle_ticket("c", 1, "answered")
    bench = replace(Machine().confirm(YOUNG, {"T": 1}), kind=Kind.BENCH)
    store.record_outcome("c", None, None, [bench])
    again = search(store)
    left = restore(again, store, "c").unconfirmed
    assert {ticket: {row.candidate for row in rows} for ticket, rows in left} == (
        {0: {OLD.id}} if answered else {0: {OLD.id}, 1: {YOUNG.id}}
    )
    for ticket, rows in left:
        again.take_up(ticket, rows)
    held = [again.state.archive.get(cell) for cell in (HERE, THERE)]
    assert [elite.candidate for elite in held if elite] == [OLD.id, YOUNG.id]
    assert not restore(search(store), store, "c").unconfirmed


def test_of_several_cells_those_that_were_not_confirmed_yet_are_caught_up(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OLD is the first in both of its cells; the process is killed in the second confirmation."""
    confirm, done = Machine.confirm, list[int]()

    def killed(machine: Machine, candidate: Candidate, params: Mapping[str, int], **options: Any) -> Evaluation:
        if params["T"] == 2:
            raise KeyboardInterrupt
        done.append(params["T"])
        return confirm(machine, candidate, params, **options)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Machine, "confirm", killed)
        judged(store, 0, OLD)
    assert done, "else this shows nothing"
    again = search(store)
    ((ticket, rows),) = restore(again, store, "c").unconfirmed
    assert ticket == 0 and [row.params for row in rows] == [{"T": 2}]
    again.take_up(ticket, rows)
    assert {elite.cell for elite in again.state.archive} == {HERE, THERE}


def fenced(number: int) -> str:
    return f'```cpp\n{HEADER}\nextern "C" int evo_run(const evo_call*) {{ return {number}; }}\n```'


def test_a_paid_kernel_that_nobody_judged_is_handed_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reply to ticket 3 was judged and 6 holds a new kernel; the others are useless, known, or were never read."""
    half = fenced(10).removesuffix("```")
    replies = {0: "prose", 3: "", 6: fenced(6), 7: "", 8: fenced(3), 9: fenced(9), 10: half}
    ends = {7: Outcome.FAILED, 8: Outcome.TRUNCATED, 10: Outcome.TRUNCATED}
    answer = Candidate("cpp", read_reply(fenced(3), "cpp", ()).source, model="m")
    parent = Candidate("cpp", HEADER + "parent")
    store.record_outcome("c", 1, parent, [Machine().trial(parent, {"T": 1}, None)], emitter="sample")
    for ticket, reply in replies.items():
        if ticket != 9:  # asked before questions were kept
            row = a_ticket(ticket, parents=(parent.id,), operator="improve", emitter="improve", state="asked")
            store.issue_ticket("c", row)
        ended = ends.get(ticket, Outcome.OK)
        store.record_call("c", a_call(str(ticket), ticket=ticket, purpose="improve", outcome=ended, reply=reply))
    store.record_outcome("c", 3, answer, [Machine().trial(answer, {"T": 1}, None)], emitter="improve")
    loop = search(store)
    wasted: list[int] = []
    monkeypatch.setattr(loop.bandit, "waste", lambda ticket, arm, usd: wasted.append(ticket))
    left = restore(loop, store, "c")
    assert wasted == [0, 7, 8, 9, 10] and loop.next_ticket == 11
    (found,) = left.answers
    assert (found.ticket, found.emitter, found.usd) == (6, "improve", a_call().usd)
    assert found.proposal is not None
    made = found.proposal.candidate
    assert "return 6" in made.source and made.parents == (parent.id,) and made.model == a_call().model
    assert found.proposal.cost_usd == found.usd


def test_what_was_handed_on_is_judged_under_its_own_ticket(store: Store) -> None:
    row = a_ticket(4, operator="invent", emitter="invent", state="asked")
    store.issue_ticket("c", row)
    store.record_call("c", a_call("4", ticket=4, purpose="invent", reply=fenced(4)))
    loop = search(store)
    left = restore(loop, store, "c")
    loop.journey.clock = Clock(1, None)
    assert loop.run([], left.answers) == "evals"
    assert [one.ticket for one in store.proposals("c")] == [4]
    assert not restore(search(store), store, "c").answers


@pytest.mark.parametrize("known", [True, False], ids=["a store that knows", "an older store"])
def test_a_resumed_pool_has_the_same_credits_and_the_same_prompts_at_work(store: Store, known: bool) -> None:
    """Children are born while outcomes and useless replies come in; what each displaced was judged by what was known
    then. An older store does not say what that was: as many are at work, the worthiest by what is known now."""
    loop = search(store)
    loop.evolution = Evolution(every=3, seed=5, usd_per_s=1e-4, active=7)
    prompts = [prompt.ref for prompt in loop.pool]
    for ticket in range(40):
        name = prompts[ticket % len(prompts)] if ticket else None  # the first kernel is nobody's merit
        if name and ticket % 5 == 2:
            call = a_call(ticket=ticket, purpose="sample", meta_prompt=name, reply="no kernel")
            store.record_call("c", call)
            loop.forfeit(ticket, call)
        else:
            candidate = replace(at(ticket), meta_prompt=name)
            proposal = Proposal(candidate, "sample", "sample", params_hint={"T": 1}, meta_prompt=name)
            loop._learn(loop.journey.travel(ticket, proposal))
        children, displaced = loop.evolution.due(loop.pool, None)
        for child in children:
            store.add_meta_prompt("c", child, displaced=displaced if known else ())
            prompts.append(child.ref)
    again = search(store)
    again.evolution = Evolution(every=3, seed=5, usd_per_s=1e-4, active=7)
    restore(again, store, "c")
    assert any(prompt.parents for prompt in loop.pool.active()), "else this shows nothing"
    active = [prompt.ref for prompt in again.pool.active()]
    assert len(active) == 7 and (not known or active == [prompt.ref for prompt in loop.pool.active()])
    assert again.pool.credits() == loop.pool.credits()
    assert again.evolution.due(again.pool, None) == ([], []), "none is bred twice"
    assert sum(credit.uses for credit in again.pool.credits().values()) == 39


class Tunable(Machine):
    """OLD is faster at T=2, and stays where it was."""

    def _measured(self, candidate: Candidate, params: Mapping[str, int], kind: Kind) -> Evaluation:
        found = super()._measured(candidate, {"T": 1}, kind)
        blocks = tuple(Block(process, 1.0, eager_ms=2.0 * params["T"]) for process in range(5))
        return replace(found, params=params, timings=(WorkloadTiming("default", "eager", blocks),))


def test_a_resumed_search_was_without_news_for_as_long(store: Store) -> None:
    """An old kernel is tuned after a younger one came, and that is news."""
    loop = search(store)
    loop.journey.measurer = Tunable()
    loop.journey.trials = 1
    for ticket, candidate in ((3, OLD), (50, YOUNG)):
        loop._learn(loop.journey.travel(ticket, Proposal(candidate, "sample", "sample", params_hint={"T": 1})))
    loop.journey.breadth = 0.0
    assert loop.journey.deepen() and loop.state.archive.get(HERE) is not None
    loop._learn(loop.journey.travel(60, Proposal(at(0), "sample", "sample", params_hint={"T": 1})))
    assert {elite.ticket for elite in loop.state.archive if elite.params == {"T": 2}} == {3}, "else this shows nothing"
    again = search(store)
    restore(again, store, "c")
    assert again.state.changed == loop.state.changed == 50


def test_a_resumed_search_knows_which_points_were_twins(store: Store) -> None:
    twin = Evaluation(OLD.id, {"T": 2}, TASK.id, TARGET.id, Status.DUPLICATE)
    store.record_outcome("c", 0, OLD, [twin], emitter="sample")
    loop = search(store)
    restore(loop, store, "c")
    assert loop.state.known(OLD.id, {"T": 2}) and not loop.state.known(OLD.id, {"T": 1})


class Idle(Tunable):
    """Of 32 points the compiler makes two programs; the faster one is T=2."""

    SOURCE = "// evoforge: param IDLE = 1 in {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}\n" + HEADER

    def object_hash(self, candidate: Candidate, params: Mapping[str, int]) -> str:
        return f"T={params['T']}"


def test_points_that_change_nothing_cost_no_trial_and_stay_known(store: Store) -> None:
    """They are looked at until one is new, and replays and resumed searches know them."""
    kernel = Candidate("cpp", Idle.SOURCE + "tuned")

    def searched(measurer: Any, name: str) -> Loop:
        loop = search(store)
        loop.journey.campaign, loop.journey.measurer, loop.journey.breadth = name, measurer, 0.0
        loop.journey.trials = 4
        start = Proposal(kernel, "sample", "sample", params_hint={"T": 1, "IDLE": 1})
        loop._learn(loop.journey.travel(0, start))
        while loop.journey.deepen():
            pass
        return loop

    live = searched(Idle(), "c")
    rows = [row.evaluation for row in store.evaluations(campaign="c")]
    same = [row for row in rows if row.status is Status.DUPLICATE]
    assert live.state.spent == 2 and len(same) > 2
    assert {row.params["T"] for row in live.state.trials.values()} == {1, 2}
    assert all(row.facts["twin"]["T"] == row.params["T"] and "T=" in row.reason for row in same)
    best = live.state.archive.best()
    assert best is not None and best.params["T"] == 2
    again = search(store)
    restore(again, store, "c")
    assert view(again) == view(live)
    assert len(again.state.same(kernel.id)) == len(same)
    store.create_campaign("d", task=TASK, target=TARGET, language="cpp", seed=0, config={}, descriptor={}, setup={})
    assert view(searched(Recorded(store, TASK, TARGET, first="c"), "d")) == view(live)
    assert [row.evaluation for row in store.evaluations(campaign="d")] == rows
