"""The store's contract as tests.

Subclass `StoreSuite` in a test module and give it a fixture `store` with an empty, open store::

    class TestMyStore(StoreSuite):
        @pytest.fixture
        def store(self) -> Iterator[Store]: ...
"""

from __future__ import annotations

import itertools
import math
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from evoforge.core import (
    PROTOCOL_VERSION,
    Block,
    Call,
    Candidate,
    Evaluation,
    Kind,
    MetaPrompt,
    Outcome,
    Status,
    Strategy,
    Target,
    Task,
    Tolerance,
    Workload,
    WorkloadTiming,
)
from evoforge.errors import CampaignLockedError, NotFoundError, StoreError, UsageError
from evoforge.storage import CampaignRow, Edge, Owner, Placement, Store, TicketRow

__all__ = ["StoreSuite", "a_call", "a_ticket", "an_evaluation", "kernel", "make_campaign", "target", "task"]


def task(**changes: Any) -> Task:
    base = Task(
        name="add",
        source="class Model: ...  # ∑",
        workloads=(Workload("small", {"M": 8, "DTYPE": "float16"}), Workload("large", {"M": 64})),
        tolerance=Tolerance("split", "forbid", 256.0),
        overrides={"N": 3, "SHAPE": (1, 2)},
        path="/somewhere/add.py",
        root="/somewhere",
    )
    return replace(base, **changes)


def target(**changes: Any) -> Target:
    fingerprint = {"cpu": "a model", "cores": 2, "l2_bytes": 1 << 20, "compiler": ["g++", "12.2"]}
    base = Target("cpu:threads=1", "cpu", 1, "x86-64-v4", fingerprint, {"read/dram": 2.5e10, "flops/f32": 1.1e11})
    return replace(base, **changes)


def kernel(text: str = "a", **changes: Any) -> Candidate:
    """A candidate whose source is made from `text`."""
    source = f"// evoforge: param T = 4 in {{4, 8}}\n// {text}\n"
    return Candidate("cpp", source, **{"operator": "sample", "meta_prompt": "plain@1", **changes})


def an_evaluation(candidate: Candidate, status: Status = Status.CORRECT, /, **changes: Any) -> Evaluation:
    """An evaluation with timings where its status has them."""
    blocks = tuple(Block(process, 0.1 + process / 3, 0.3, None, process / 7 or None) for process in range(5))
    timed = status in (Status.CORRECT, Status.PRUNED, Status.QUARANTINED)
    timings = (WorkloadTiming("small", "eager", blocks, 0.01), WorkloadTiming("large", "eager", blocks, None))
    base = Evaluation(
        candidate=candidate.id,
        params={"T": 4},
        task=task().id,
        target=target().id,
        status=status,
        timings=timings if timed else (),
    )
    return replace(base, **changes)


def make_campaign(store: Store, name: str | None = "c", **changes: Any) -> CampaignRow:
    given: dict[str, Any] = {
        "task": task(),
        "target": target(),
        "language": "cpp",
        "seed": 7,
        "config": {"budget": {"evals": 4}},
        "descriptor": {"name": "default", "version": 1},
    }
    return store.create_campaign(name, **{**given, **changes})


def placed(candidate: Candidate, **changes: Any) -> Placement:
    base = Placement("NEW", (1, 2, 3), candidate.id, {"T": 4}, 0.5, 0.25, "first here")
    return replace(base, **changes)


def fill(store: Store, campaign: str, kernels: Sequence[Candidate]) -> None:
    """One confirmed outcome per kernel, tickets from 0."""
    for ticket, candidate in enumerate(kernels):
        confirm = an_evaluation(candidate, kind=Kind.CONFIRM, cell=(1, 2, 3))
        store.record_outcome(campaign, ticket, candidate, [an_evaluation(candidate), confirm], [placed(candidate)])


def a_call(text: str = "a", **changes: Any) -> Call:
    """A call whose prompt and reply are made from `text`."""
    base = Call(
        ticket=3,
        purpose="improve",
        model="openai/some",
        prompt_hash=text * 64,
        system="You write kernels. ∑",
        user=f"Improve {text}.",
        reply=f"```cpp\n{text}\n```",
        outcome=Outcome.OK,
        reason="",
        prompt_tokens=1200,
        cached_tokens=1024,
        completion_tokens=300,
        usd=0.1 + 0.2,
        latency_s=1 / 3,
        retries=1,
        unsure_usd=0.05,
        unsure_tokens=9000,
    )
    return replace(base, **changes)


def a_ticket(number: int = 0, campaign: str = "c", **changes: Any) -> TicketRow:
    base = TicketRow(
        campaign=campaign,
        ticket=number,
        emitter="agent",
        operator="improve",
        parents=(),
        meta_prompt="plain@1",
        target_cell=(0, 1, 2),
        exemplars=(),
        prompt="Make it faster. ∑",
        expires="2030-01-01T00:00:00.000+00:00",
    )
    return replace(base, **changes)


class StoreSuite:
    """Every promise of `evoforge.storage.Store`."""

    # Campaigns

    def test_a_campaign_comes_back_as_it_was_given(self, store: Store) -> None:
        made = make_campaign(store, "quick", reachable=[(0, 0, 0), (1, 2, 3)], setup={"bounds": {"small": None}})
        row = store.campaign("quick")
        assert row == made
        assert row.task == task(overrides={"N": 3, "SHAPE": [1, 2]})  # JSON has no tuples
        assert (row.task.id, row.target.id) == (task().id, target().id)
        assert row.target == target()
        assert (row.language, row.seed, row.protocol) == ("cpp", 7, PROTOCOL_VERSION)
        assert (row.config, row.descriptor) == ({"budget": {"evals": 4}}, {"name": "default", "version": 1})
        assert (row.reachable, row.setup) == (((0, 0, 0), (1, 2, 3)), {"bounds": {"small": None}})
        assert (row.state, row.stop_reason, row.wall_s) == ("created", None, 0.0)
        assert row.created.endswith("+00:00") and row.created == row.updated

    def test_every_cell_counts_where_no_mask_is_given(self, store: Store) -> None:
        assert make_campaign(store).reachable is None
        assert make_campaign(store, "none", reachable=[]).reachable == ()

    def test_campaigns_keep_their_own_paths_and_ceilings(self, store: Store) -> None:
        make_campaign(store, "here")
        make_campaign(store, "there", task=task(name="other", path="/b/add.py"), target=target(ceilings={}))
        assert (store.campaign("here").task.path, store.campaign("there").task.path) == (
            "/somewhere/add.py",
            "/b/add.py",
        )
        assert store.campaign("there").task.name == "other"
        assert store.campaign("here").target.ceilings["read/dram"] == 2.5e10
        assert store.campaign("there").target.ceilings == {}
        assert len(store.tasks()) == len(store.targets()) == 1

    def test_campaigns_come_in_order_of_creation(self, store: Store) -> None:
        for name in ("b", "a", "c"):
            make_campaign(store, name)
        assert [row.name for row in store.campaigns()] == ["b", "a", "c"]

    def test_a_taken_name_is_refused_and_the_next_free_one_named(self, store: Store) -> None:
        make_campaign(store, "quick")
        make_campaign(store, "quick-4")
        with pytest.raises(UsageError, match=r"quick.* exists.*--name quick-5"):
            make_campaign(store, "quick")
        assert len(store.campaigns()) == 2

    @pytest.mark.parametrize("name", ["", "  ", "a\nb", "x" * 201])
    def test_a_name_must_be_one(self, store: Store, name: str) -> None:
        with pytest.raises(UsageError, match="campaign name"):
            make_campaign(store, name)

    def test_without_a_name_it_counts_past_the_highest(self, store: Store) -> None:
        def named(stem: str) -> str:
            return make_campaign(store, None, task=task(name=stem)).name

        assert named("run") == "run-1"
        for name in ("run-10", "run-x", "runs-99", "run", "a.b-7"):
            make_campaign(store, name)
        assert [named("run"), named("run"), named("a.b"), named("aXb")] == ["run-11", "run-12", "a.b-8", "aXb-1"]

    def test_who_creates_at_once_gets_another_name(self, store: Store) -> None:
        with ThreadPoolExecutor(4) as pool:
            rows = list(pool.map(lambda _: make_campaign(store, None), range(8)))
        assert sorted(row.name for row in rows) == [f"add-{n}" for n in range(1, 9)]

    def test_an_unknown_campaign_is_named_with_the_closest(self, store: Store) -> None:
        make_campaign(store, "softmax-1")
        with pytest.raises(NotFoundError, match=r"softmax-2.*did you mean softmax-1"):
            store.campaign("softmax-2")
        with pytest.raises(NotFoundError, match="no campaign"):
            store.update_campaign("zzz", state="running")
        with pytest.raises(NotFoundError, match="no campaign"):
            store.delete_campaign("zzz")
        with pytest.raises(NotFoundError, match="no campaign"), store.lock_campaign("zzz"):
            raise AssertionError("locked what is not there")
        with pytest.raises(NotFoundError, match="no campaign"):
            store.record_outcome("zzz", 0, kernel())
        with pytest.raises(NotFoundError, match="no campaign"):
            store.add_meta_prompt("zzz", MetaPrompt("plain", 1, "cpp", Strategy(), {}))

    def test_bookkeeping_changes_and_nothing_else_does(self, store: Store) -> None:
        made = make_campaign(store, setup={"a": 1})
        store.update_campaign("c", state="running", wall_s=1.5)
        row = store.campaign("c")
        assert replace(row, updated=made.updated) == replace(made, state="running", wall_s=1.5)
        assert row.updated >= made.updated
        store.update_campaign("c", stop_reason="disk\udc80")
        assert store.campaign("c").stop_reason == r"disk\udc80"
        store.update_campaign("c", setup={"b": 2})
        store.update_campaign("c", stop_reason="")
        last = store.campaign("c")
        assert (last.state, last.wall_s, last.setup, last.stop_reason) == ("running", 1.5, {"b": 2}, None)

    # Locks

    def test_one_coordinator_at_a_time(self, store: Store) -> None:
        make_campaign(store)
        make_campaign(store, "other")
        with store.lock_campaign("c") as owner:
            assert owner.pid == os.getpid()
            with (
                pytest.raises(CampaignLockedError, match=rf"'c' is being written by process {os.getpid()}"),
                store.lock_campaign("c"),
            ):
                raise AssertionError("two coordinators")
            with store.lock_campaign("other"):
                pass
            store.record_outcome("c", 0, kernel())
            with pytest.raises(CampaignLockedError):
                store.delete_campaign("c")
        with store.lock_campaign("c"):
            pass

    def test_who_holds_a_campaign_is_told(self, store: Store) -> None:
        make_campaign(store)
        make_campaign(store, "other")
        assert not store.is_held("c")
        with store.lock_campaign("c"):
            assert (store.is_held("c"), store.is_held("other")) == (True, False)
        assert not store.is_held("c")
        with pytest.raises(NotFoundError):
            store.is_held("zzz")

    def test_a_lock_is_given_back_after_an_exception(self, store: Store) -> None:
        make_campaign(store)
        with pytest.raises(KeyError), store.lock_campaign("c"):
            raise KeyError
        with store.lock_campaign("c"):
            pass

    def test_only_one_of_many_threads_gets_the_lock(self, store: Store) -> None:
        make_campaign(store)
        barrier = threading.Barrier(4, timeout=20)  # so that a broken lock fails and does not hang
        held, refused = [], []

        def enter() -> None:
            barrier.wait()
            try:
                with store.lock_campaign("c") as owner:
                    held.append(owner)
                    barrier.wait()  # the others have tried by now
            except CampaignLockedError as error:
                refused.append(error)
                barrier.wait()

        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(enter) for _ in range(4)]:
                done.result()
        assert (len(held), len(refused)) == (1, 3)

    # Outcomes

    def test_an_evaluation_comes_back_exactly(self, store: Store) -> None:
        make_campaign(store)
        candidate = kernel()
        given = an_evaluation(
            candidate,
            kind=Kind.CONFIRM,
            params={"Z": 3, "A": -1},
            reason="ünïcode, a zero byte \0 and half a character \udc80",
            max_error=0.1 + 0.2,
            facts={"vector": 3, "nested": {"list": [1, 2.5, None, True]}},
            cell=(3, 0, 1),
            flags=("nondeterministic", "hot"),
            seconds={"build": 0.25},
            sandbox="basic",
        )
        (number,) = store.record_outcome("c", 3, candidate, [given])
        (row,) = store.evaluations()
        assert row.evaluation == given
        assert list(row.evaluation.params) == ["Z", "A"]
        assert (row.id, row.campaign, row.ticket) == (number, "c", 3)
        assert row.created.endswith("+00:00")

    @pytest.mark.parametrize("status", list(Status))
    def test_every_status_is_stored(self, store: Store, status: Status) -> None:
        make_campaign(store)
        given = an_evaluation(kernel(), status)
        store.record_outcome("c", 0, kernel(), [given])
        assert store.evaluations(status=status)[0].evaluation == given
        assert store.counts("c") == {status: 1}

    @pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 5e-324, 1.7976931348623157e308, None])
    def test_extreme_numbers_survive(self, store: Store, value: float | None) -> None:
        make_campaign(store)
        store.record_outcome("c", 0, kernel(), [an_evaluation(kernel(), Status.WRONG, max_error=value)])
        (row,) = store.evaluations()
        assert repr(row.evaluation.max_error) == repr(value)

    def test_an_outcome_can_come_in_parts(self, store: Store) -> None:
        make_campaign(store)
        candidate = kernel()
        first = store.record_outcome("c", 0, candidate, [an_evaluation(candidate)], emitter="mutate")
        second = store.record_outcome("c", 0, candidate, [an_evaluation(candidate, params={"T": 8})])
        third = store.record_outcome("c", 0, None, [an_evaluation(candidate, kind=Kind.CONFIRM)])
        bench = store.record_outcome("c", None, None, [an_evaluation(candidate, kind=Kind.BENCH)])
        rows = store.evaluations(campaign="c")
        assert [row.id for row in rows] == [*first, *second, *third, *bench] == sorted(row.id for row in rows)
        assert [row.ticket for row in rows] == [0, 0, 0, None]
        assert len(store.proposals("c")) == 1
        assert store.proposals("c")[0].emitter == "mutate"

    def test_a_ticket_has_one_candidate(self, store: Store) -> None:
        make_campaign(store)
        store.record_outcome("c", 0, kernel("a"))
        with pytest.raises(StoreError, match=r"ticket 0 .*one candidate"):
            store.record_outcome("c", 0, kernel("b"))
        with pytest.raises(StoreError, match="ticket"):
            store.record_outcome("c", None, kernel("b"))
        assert [candidate.id for candidate in store.candidates("c")] == [kernel("a").id]
        with pytest.raises(NotFoundError):
            store.candidate(kernel("b").id)

    @pytest.mark.parametrize("what", ["candidate", "task", "target", "parent", "placement"])
    def test_a_failing_outcome_leaves_nothing(self, store: Store, what: str) -> None:
        make_campaign(store)
        good, bad = kernel("good"), kernel("bad", parents=("e" * 64,))
        evaluations = [an_evaluation(good)]
        if what in ("candidate", "task", "target"):
            evaluations.append(an_evaluation(good, **{what: "f" * 64}))
        placements = [placed(good, params={"T": 8})] if what == "placement" else []
        with pytest.raises(StoreError, match="placement" if what == "placement" else what):
            store.record_outcome("c", 0, bad if what == "parent" else good, evaluations, placements)
        assert store.evaluations() == [] and store.proposals("c") == [] and store.candidates("c") == []
        assert store.last_ticket("c") is None
        assert store.check() == []

    def test_evaluations_are_found_by_every_condition(self, store: Store) -> None:
        make_campaign(store, "c")
        make_campaign(store, "d", task=task(source="other"))
        a, b = kernel("a"), kernel("b")
        other = an_evaluation(b, task=task(source="other").id, kind=Kind.BENCH)
        store.record_outcome("c", 0, a, [an_evaluation(a), an_evaluation(a, Status.WRONG)])
        store.record_outcome("d", 0, b, [other])

        def found(**conditions: Any) -> list[Evaluation]:
            return [row.evaluation for row in store.evaluations(**conditions)]

        assert len(found()) == 3
        assert found(campaign="d") == found(candidate=b.id) == found(kind=Kind.BENCH) == [other]
        assert found(task=task(source="other").id) == [other]
        assert len(found(campaign="c", target=target().id)) == 2
        assert len(found(campaign="c", status=Status.WRONG)) == 1
        assert found(campaign="c", candidate=b.id) == found(target="f" * 64) == []

    def test_recorded_results_are_found_in_stored_order(self, store: Store) -> None:
        make_campaign(store, "c")
        make_campaign(store, "d")
        candidate = kernel()
        both = {"T": 4, "U": 2}
        for campaign, error in (("c", 1.0), ("d", 2.0), ("c", 3.0)):
            store.record_outcome(campaign, 0, candidate, [an_evaluation(candidate, params=both, max_error=error)])
        decoys = [
            an_evaluation(candidate, params={"T": 4}),
            an_evaluation(candidate, params={"T": 2, "U": 4}),
            an_evaluation(candidate, params=both, kind=Kind.CONFIRM),
            an_evaluation(candidate, params=both, protocol=PROTOCOL_VERSION + 1),
        ]
        store.record_outcome("c", 0, candidate, decoys)
        key = (candidate.id, {"U": 2, "T": 4}, task().id, target().id, PROTOCOL_VERSION, Kind.TRIAL)
        assert [row.evaluation.max_error for row in store.find_recorded(*key)] == [1.0, 2.0, 3.0]
        assert store.find_recorded("f" * 64, *key[1:]) == []

    def test_claims_are_all_that_is_known_of_what_was_confirmed(self, store: Store) -> None:
        make_campaign(store)
        make_campaign(store, "other")
        plain, child = kernel("plain"), kernel("child", parents=(kernel("plain").id,))
        store.record_outcome("c", 0, plain, [an_evaluation(plain), an_evaluation(plain, Status.WRONG, reason="one")])
        store.record_outcome("c", 1, child, [an_evaluation(child), an_evaluation(child, kind=Kind.CONFIRM)])
        store.record_outcome("c", None, None, [an_evaluation(child, Status.CRASH, kind=Kind.BENCH)])
        store.record_outcome("other", 0, plain, [an_evaluation(plain, kind=Kind.CONFIRM)])
        rows, candidates = store.claims("c")
        assert rows == store.evaluations(campaign="c", candidate=child.id) and len(rows) == 3
        assert candidates == [child]
        store.record_outcome("c", 2, child, [an_evaluation(child, Status.WRONG, reason="two")])
        assert [(row.ticket, row.evaluation.status, row.evaluation.reason) for row in store.last_trials("c")] == [
            (1, Status.CORRECT, ""),
            (2, Status.WRONG, "two"),
        ]

    def test_counts_by_status_and_kind(self, store: Store) -> None:
        make_campaign(store, "c")
        make_campaign(store, "d")
        candidate = kernel()
        rows = [an_evaluation(candidate), an_evaluation(candidate), an_evaluation(candidate, Status.CRASH)]
        store.record_outcome("c", 0, candidate, [*rows, an_evaluation(candidate, kind=Kind.CONFIRM)])
        assert store.counts("c") == {Status.CORRECT: 3, Status.CRASH: 1}
        assert store.counts("c", Kind.TRIAL) == {Status.CORRECT: 2, Status.CRASH: 1}
        assert store.counts("d") == {}

    def test_seconds_are_summed_by_stage(self, store: Store) -> None:
        make_campaign(store, "c")
        make_campaign(store, "d")
        took = [{"build": 0.25, "time": 1.0}, {"time": 2.0}, {}]
        rows = [an_evaluation(kernel(), seconds=seconds) for seconds in took]
        store.record_outcome("c", 0, kernel(), rows)
        store.record_outcome("c", None, None, [an_evaluation(kernel(), kind=Kind.BENCH, seconds={"bench": 4.0})])
        assert store.seconds("c") == {"build": 0.25, "time": 3.0, "bench": 4.0}
        assert store.seconds("d") == {}

    def test_placements_rest_on_an_evaluation(self, store: Store) -> None:
        make_campaign(store)
        candidate = kernel()
        confirm = an_evaluation(candidate, kind=Kind.CONFIRM, cell=(1, 2, 3))
        ids = store.record_outcome("c", 0, candidate, [an_evaluation(candidate), confirm], [placed(candidate)])
        failed = an_evaluation(candidate, Status.WRONG, kind=Kind.CONFIRM)
        demoted = placed(candidate, action="DEMOTED", reason="wrong on new inputs")
        odd = replace(demoted, reason="printed \0 and \udc80")
        (later,) = store.record_outcome("c", 1, None, [failed], [demoted])
        store.record_outcome("c", 2, None, [], [placed(candidate, action="IMPROVED")])
        store.record_outcome("c", 2, None, [], [placed(candidate, action="REJECTED", evaluation=ids[0])])
        store.record_outcome("c", 2, None, [], [replace(odd, evaluation=later)])
        rows = store.placements("c")
        assert rows.pop().placement.reason == r"printed \0 and \udc80"
        assert [row.placement for row in rows] == [
            placed(candidate, evaluation=ids[1]),
            replace(demoted, evaluation=later),
            placed(candidate, action="IMPROVED", evaluation=ids[1]),  # not on the wrong one
            placed(candidate, action="REJECTED", evaluation=ids[0]),
        ]
        assert [row.ticket for row in rows] == [0, 1, 2, 2]
        assert [row.id for row in rows] == sorted(row.id for row in rows)
        assert store.check() == []

    def test_a_placement_cannot_rest_on_what_measured_something_else(self, store: Store) -> None:
        make_campaign(store)
        make_campaign(store, "d")
        candidate = kernel()
        (number,) = store.record_outcome("c", 0, candidate, [an_evaluation(candidate, params={"T": 8})])
        store.record_outcome("d", 0, candidate, [an_evaluation(candidate)])
        for evaluation in (None, number, number + 99):
            with pytest.raises(StoreError, match="needs an evaluation"):
                store.record_outcome("c", 1, None, [], [placed(candidate, evaluation=evaluation)])
        assert store.placements("c") == []

    def test_a_placement_has_one_of_four_actions(self) -> None:
        with pytest.raises(ValueError, match="NEW, IMPROVED, REJECTED, DEMOTED"):
            placed(kernel(), action="BETTER")

    # Candidates

    def test_a_candidate_comes_back_whole_and_keeps_its_id(self, store: Store) -> None:
        make_campaign(store)
        root = kernel("root", operator="import", meta_prompt=None, licence="MIT")
        genome = {"tile": [4, 8], "z": 1, "a": {"b": None}}
        child = kernel("child", genome=genome, parents=(root.id, root.id), operator="cross", notes={"k": 1}, model="m")
        store.record_outcome("c", 0, root)
        store.record_outcome("c", 1, child)
        found = store.candidate(child.id[:12].upper())
        assert found == child and found.id == child.id
        assert found.genome is not None and list(found.genome) == ["tile", "z", "a"]
        assert store.candidate(root.id) == root

    def test_a_prefix_must_mean_one_candidate(self, store: Store) -> None:
        make_campaign(store)
        for ticket in range(20):  # 20 ids, 16 first digits: two share one
            store.record_outcome("c", ticket, kernel(str(ticket)))
        ids = sorted(candidate.id for candidate in store.candidates("c"))
        shared = next(a[0] for a, b in itertools.pairwise(ids) if a[0] == b[0])
        with pytest.raises(UsageError, match="several candidates"):
            store.candidate(shared)
        for wrong in ("", "xyz", "%", "_", "a" * 65):
            with pytest.raises(UsageError, match="hexadecimal"):
                store.candidate(wrong)
        with pytest.raises(NotFoundError, match="no candidate"):
            store.candidate("0123456789abcdef")
        for whole in ids:
            assert store.candidate(whole).id == whole

    def test_the_first_to_bring_a_text_is_its_author(self, store: Store) -> None:
        make_campaign(store, "c")
        make_campaign(store, "d")
        root = kernel("root")
        store.record_outcome("c", 0, root)
        store.record_outcome("c", 1, kernel("x"))
        again = kernel("x", parents=(root.id,), operator="mutate", meta_prompt="bold@2", model="m")
        store.record_outcome("d", 0, again, emitter="mutate", target_cell=(0, 1, 2))
        assert store.candidate(again.id) == kernel("x")
        (row,) = store.proposals("d")
        assert (row.candidate, row.operator, row.parents, row.emitter) == (again.id, "mutate", (root.id,), "mutate")
        assert (row.meta_prompt, row.model, row.target_cell) == ("bold@2", "m", (0, 1, 2))
        assert store.lineage(again.id) == []

    def test_proposals_and_candidates_come_in_ticket_order(self, store: Store) -> None:
        make_campaign(store)
        assert store.last_ticket("c") is None
        for ticket, text in ((10, "late"), (2, "early"), (9, "again"), (11, "early")):
            store.record_outcome("c", ticket, kernel(text))
        assert [row.ticket for row in store.proposals("c")] == [2, 9, 10, 11]
        assert store.candidates("c") == [kernel("early"), kernel("again"), kernel("late")]
        assert store.last_ticket("c") == 11
        store.record_outcome("c", 12, None, [an_evaluation(kernel("late"))])
        assert store.last_ticket("c") == 12

    def test_lineage_reaches_every_ancestor_once(self, store: Store) -> None:
        make_campaign(store)
        a, b, stranger = kernel("a"), kernel("b"), kernel("stranger")
        c = kernel("c", parents=(b.id, a.id))
        d = kernel("d", parents=(c.id, a.id, c.id))
        for ticket, candidate in enumerate((a, b, stranger, c, d)):
            store.record_outcome("c", ticket, candidate)
        assert store.lineage(d.id) == [
            Edge(d.id, c.id, 0),
            Edge(d.id, a.id, 1),
            Edge(c.id, b.id, 0),
            Edge(c.id, a.id, 1),
        ]
        assert store.lineage(a.id) == [] == store.lineage("f" * 64)

    def test_a_lineage_may_be_long(self, store: Store) -> None:
        make_campaign(store)
        line = [kernel("0")]
        for generation in range(1, 120):
            line.append(kernel(str(generation), parents=(line[-1].id,)))
        for ticket, candidate in enumerate(line):
            store.record_outcome("c", ticket, candidate)
        assert [edge.parent for edge in store.lineage(line[-1].id)] == [item.id for item in reversed(line[:-1])]

    # Deleting

    def test_deleting_takes_what_nothing_else_uses(self, store: Store) -> None:
        make_campaign(store, "c", task=task(source="only c"))
        make_campaign(store, "d")
        root, shared, own = kernel("root"), kernel("shared"), kernel("own")
        child = kernel("child", parents=(root.id,))
        for ticket, candidate in enumerate((root, shared, own)):
            store.record_outcome("c", ticket, candidate)
        store.add_meta_prompt("c", MetaPrompt("plain", 1, "cpp", Strategy(), {}))
        fill(store, "d", [shared, child])
        store.record_outcome("c", 3, None, [an_evaluation(own)], [placed(own)])
        store.delete_campaign("c")
        assert [row.name for row in store.campaigns()] == ["d"]
        assert len(store.evaluations()) == 4
        assert store.candidate(root.id) == root  # an ancestor of d's
        assert [edge.parent for edge in store.lineage(child.id)] == [root.id]
        with pytest.raises(NotFoundError):
            store.candidate(own.id)
        assert [found.id for found in store.tasks()] == [task().id]
        assert store.proposals("c") == [] and store.placements("c") == [] and store.meta_prompts("c") == []
        assert store.check() == []
        store.delete_campaign("d")
        assert store.tasks() == [] and store.targets() == []
        make_campaign(store, "c")

    # Meta-prompts

    def test_meta_prompts_keep_versions_and_order(self, store: Store) -> None:
        make_campaign(store, "c")
        make_campaign(store, "d")
        strategy = Strategy({"mutate": 2.0}, {"memory=3": 1.5}, {"TILE=4": 0.0})
        first = MetaPrompt("plain", 1, "cpp", strategy, {"Task": "x", "Advice": "y"})
        second = replace(first, version=2, parents=("plain@1",), sections={"Zeta": "", "Alpha": "a"})
        for prompt in (second, first, second):
            store.add_meta_prompt("c", prompt, displaced=("old@1", "old@2") if prompt is first else ())
        rows = store.meta_prompts("c")
        assert [row.displaced for row in rows] == [(), ("old@1", "old@2")]
        assert [row.meta_prompt for row in rows] == [second, first]
        assert list(rows[0].meta_prompt.sections) == ["Zeta", "Alpha"]
        assert store.meta_prompts("d") == []
        with pytest.raises(StoreError, match=r"plain@1 .*new version"):
            store.add_meta_prompt("c", replace(first, sections={}))

    # Calls of models

    def test_calls_come_back_whole_and_in_stored_order(self, store: Store) -> None:
        make_campaign(store, "c")
        make_campaign(store, "d")
        calls = [
            a_call("b"),
            a_call("a", ticket=None, purpose="evolve", outcome=Outcome.FAILED, reply="", reason="no answer"),
            a_call("b", usd=0.0),
        ]
        ids = [store.record_call("c", call) for call in calls]
        other = store.record_call("d", a_call("b", reply="other"))
        rows = store.calls("c")
        assert [row.call for row in rows] == calls
        short = [replace(call, system="", user="", reply="") for call in calls]
        assert store.calls("c", texts=False) == [replace(row, call=call) for row, call in zip(rows, short, strict=True)]
        assert [row.id for row in rows] == ids == sorted(ids)
        assert {row.campaign for row in rows} == {"c"} and rows[0].created.endswith("+00:00")
        assert [row.id for row in store.find_call("b" * 64)] == [ids[0], ids[2], other]
        assert [row.id for row in store.find_call("b" * 64, "c")] == [ids[0], ids[2]]
        assert store.find_call("f" * 64) == [] == store.calls("nobody")
        assert store.check() == []

    def test_a_hostile_reply_is_stored_readable(self, store: Store) -> None:
        make_campaign(store)
        store.record_call("c", a_call(reply="'; DROP TABLE llm_calls; -- \0 \udc80", user="\udc80", reason="\0"))
        (row,) = store.calls("c")
        assert row.call.reply == r"'; DROP TABLE llm_calls; -- \0 \udc80"
        assert (row.call.user, row.call.reason) == (r"\udc80", r"\0")
        assert store.check() == []

    def test_a_call_needs_its_campaign(self, store: Store) -> None:
        with pytest.raises(NotFoundError):
            store.record_call("nobody", a_call())

    def test_what_a_call_came_to_takes_its_place(self, store: Store) -> None:
        make_campaign(store, "c")
        make_campaign(store, "d")
        made = [store.record_call("c", a_call(text, outcome=Outcome.FAILED, reply="", usd=0.0)) for text in "abc"]
        begun = store.calls("c")[1].created
        store.replace_call("c", made[1], a_call("b", reply="late \0"))
        store.replace_call("c", made[0], None)
        assert [row.id for row in store.calls("c")] == made[1:]
        assert store.calls("c")[0].call == a_call("b", reply=r"late \0") and store.calls("c")[0].created == begun
        for campaign, number in (("c", made[0]), ("d", made[1]), ("nobody", made[1])):
            with pytest.raises(NotFoundError):
                store.replace_call(campaign, number, a_call("b"))
        assert store.check() == []

    # Tickets

    def test_a_ticket_comes_back_whole(self, store: Store) -> None:
        make_campaign(store)
        store.record_outcome("c", 0, kernel("a"))
        full = a_ticket(4, parents=(kernel("a").id,) * 2, exemplars=(kernel("a").id,))
        bare = a_ticket(2, meta_prompt=None, target_cell=None)
        for ticket in (full, bare):
            store.issue_ticket("c", ticket)
        assert store.ticket("c", 4) == full
        assert store.tickets("c") == [bare, full]
        assert store.last_ticket("c") == 4
        assert store.check() == []
        store.record_outcome("c", 4, kernel("b"))
        assert store.last_ticket("c") == 4

    def test_a_number_is_issued_once(self, store: Store) -> None:
        make_campaign(store)
        make_campaign(store, "d")
        store.record_outcome("c", 0, kernel("a"))
        store.record_outcome("c", 1, None, [an_evaluation(kernel("a"))])
        store.issue_ticket("c", a_ticket(2))
        for number in (0, 1, 2):
            with pytest.raises(StoreError, match=f"ticket {number} .*taken"):
                store.issue_ticket("c", a_ticket(number, prompt="other"))
        with pytest.raises(StoreError, match="'d'"):
            store.issue_ticket("c", a_ticket(3, "d"))
        with pytest.raises(NotFoundError):
            store.issue_ticket("nobody", a_ticket(3, "nobody"))
        unknown: list[dict[str, Any]] = [{"parents": ("e" * 64,)}, {"exemplars": ("e" * 64,)}]
        for changes in unknown:
            with pytest.raises(StoreError, match=r"stored (parent|exemplar)"):
                store.issue_ticket("c", a_ticket(3, **changes))
        assert store.tickets("c") == [a_ticket(2)]
        store.issue_ticket("d", a_ticket(2, "d"))

    def test_a_ticket_is_settled_once(self, store: Store) -> None:
        make_campaign(store)
        for number in (0, 1):
            store.issue_ticket("c", a_ticket(number))
        with ThreadPoolExecutor(4) as pool:
            won = list(pool.map(lambda state: store.settle_ticket("c", 0, state), ["answered"] * 6))
        assert sorted(won) == [False] * 5 + [True]
        assert store.settle_ticket("c", 1, "expired") is True
        assert store.settle_ticket("c", 1, "answered") is False
        assert [ticket.state for ticket in store.tickets("c")] == ["answered", "expired"]
        with pytest.raises(ValueError, match="answered or expired"):
            store.settle_ticket("c", 0, "open")
        for number in (7, -1, 10**30):
            with pytest.raises(NotFoundError, match=f"no ticket {number}"):
                store.settle_ticket("c", number, "expired")
            with pytest.raises(NotFoundError, match=f"no ticket {number}"):
                store.ticket("c", number)
        with pytest.raises(NotFoundError, match="campaign"):
            store.ticket("nobody", 0)

    def test_deleting_takes_calls_and_tickets_but_not_what_a_ticket_names(self, store: Store) -> None:
        make_campaign(store, "c")
        make_campaign(store, "d")
        store.record_outcome("c", 0, kernel("shown"))
        store.record_outcome("c", 1, kernel("unseen"))
        store.record_call("c", a_call())
        store.record_call("d", a_call())
        store.issue_ticket("c", a_ticket(2))
        store.issue_ticket("d", a_ticket(0, "d", exemplars=(kernel("shown").id,)))
        store.delete_campaign("c")
        assert store.calls("c") == [] == store.tickets("c")
        assert len(store.find_call("a" * 64)) == 1
        assert store.candidate(kernel("shown").id) == kernel("shown")
        with pytest.raises(NotFoundError):
            store.candidate(kernel("unseen").id)
        assert store.check() == []

    # The store itself

    def test_a_sound_store_has_no_problems(self, store: Store) -> None:
        assert store.check() == []
        make_campaign(store)
        fill(store, "c", [kernel("a"), kernel("b", parents=(kernel("a").id,))])
        assert store.check() == []

    def test_threads_can_write_and_read_at_once(self, store: Store) -> None:
        names = ["t0", "t1", "t2"]
        for name in names:
            make_campaign(store, name)

        def work(name: str) -> None:
            for ticket in range(8):
                candidate = kernel(str(ticket))  # the same texts in every campaign
                store.record_outcome(name, ticket, candidate, [an_evaluation(candidate)])
                assert len(store.evaluations(campaign=name)) == ticket + 1

        with ThreadPoolExecutor(3) as pool:
            for done in [pool.submit(work, name) for name in names]:
                done.result()
        assert len(store.evaluations()) == 24 and len(store.candidates("t1")) == 8
        assert store.check() == []

    def test_owners_are_told_apart(self) -> None:
        one, other = Owner.current(), Owner.current()
        assert one.alive and one.pid == os.getpid()
        assert one != other
        assert not replace(one, started=Owner.of(1).started).alive
