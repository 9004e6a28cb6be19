"""What a replay is served."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from evoforge.archives import racers
from evoforge.archives.descriptor import Descriptor
from evoforge.campaign._measure import Live, Recorded
from evoforge.core import Block, Candidate, Evaluation, Kind, Params, Status, Target, Task, Workload, WorkloadTiming
from evoforge.errors import NotFoundError
from evoforge.storage import open_store


def test_a_replay_is_served_its_own_campaigns_rows_first(tmp_path: Path) -> None:
    """Two campaigns of one store measured the same kernel: 1.0 times the baseline's speed, and 4.0 times."""
    task, target = Task("t", "x = 1", (Workload("default"),)), Target("cpu", "cpu", 1, "native", {})
    kernel = Candidate("cpp", "int shared;")
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        for name, faster in (("older", 1.0), ("newer", 4.0)):
            store.create_campaign(
                name, task=task, target=target, language="cpp", seed=0, config={}, descriptor={}, setup={}
            )
            blocks = tuple(Block(process, 1.0, eager_ms=faster) for process in range(5))
            evaluation = Evaluation(
                kernel.id, {}, task.id, target.id, Status.CORRECT, Kind.TRIAL,
                timings=(WorkloadTiming("default", "eager", blocks),), cell=(1, 1, 1),
            )  # fmt: skip
            store.record_outcome(name, 0, kernel, [evaluation], emitter="sample")
        for first, log2 in (("older", 0.0), ("newer", 2.0), (None, 0.0)):
            assert Recorded(store, task, target, first=first).trial(kernel, {}, None).objective == log2


def test_the_code_of_a_text_whose_header_cannot_be_read_is_not_known() -> None:
    class Judge:
        def build(self, candidate: Candidate, params: Params) -> object:
            return candidate.space

    live = Live(cast(Any, Judge()), Descriptor(), build_jobs=1)
    assert live.object_hash(Candidate("cpp", "// evoforge: param what"), {}) is None


def test_what_compiles_to_what_had_a_trial_is_not_described_ahead() -> None:
    """Odd values make one program, even ones another; 0 does not build."""
    described: list[int] = []

    class Judge:
        def build(self, candidate: Candidate, params: Params) -> object:
            value = params["T"]
            return {"default": SimpleNamespace(text_hash=("even", "odd")[value % 2] if value else "")}

        def build_ahead(self, candidate: Candidate, params: Params) -> None:
            described.append(params["T"])

        def trial(self, candidate: Candidate, params: Params, *, prune_below: float | None) -> Evaluation:
            return Evaluation(candidate.id, params, "t", "cpu", Status.WRONG)

    live, kernel = Live(cast(Any, Judge()), Descriptor(), build_jobs=2), Candidate("cpp", "int x = T;")
    live.build_ahead([(kernel, {"T": value}) for value in (1, 2)])
    assert sorted(described) == [1, 2]
    live.trial(kernel, {"T": 1}, None)
    live.build_ahead([(kernel, {"T": value}) for value in (3, 4, 0)])
    assert described[2:] == [4]


def test_copies_of_one_measurement_are_one(tmp_path: Path) -> None:
    """A replay stores what it was served: that is no second confirmation."""
    task, target = Task("t", "x = 1", (Workload("default"),)), Target("cpu", "cpu", 1, "native", {})
    kernel = Candidate("cpp", "int shared;")
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        for name in ("recorded", "replay"):
            store.create_campaign(
                name, task=task, target=target, language="cpp", seed=0, config={}, descriptor={}, setup={}
            )
        blocks = tuple(Block(process, 1.0, eager_ms=2.0) for process in range(5))
        confirm = Evaluation(
            kernel.id, {}, task.id, target.id, Status.CORRECT, Kind.CONFIRM,
            timings=(WorkloadTiming("default", "eager", blocks),), cell=(1, 1, 1),
        )  # fmt: skip
        store.record_outcome("recorded", 0, kernel, [confirm], emitter="sample")
        served = Recorded(store, task, target)
        assert served.confirm(kernel, {}) == confirm
        store.record_outcome("replay", 0, kernel, [confirm], emitter="sample")
        with pytest.raises(NotFoundError, match="replay-extend"):
            served.confirm(kernel, {})


def test_a_race_is_replayed_whole_or_not_at_all(tmp_path: Path) -> None:
    """The n-th of these kernels is the n-th recorded, whoever else ran with them in other races."""
    task, target = Task("t", "x = 1", (Workload("default"),)), Target("cpu", "cpu", 1, "native", {})
    kernels = [(Candidate("cpp", f"int kernel_{at};"), {"T": at}) for at in range(3)]

    def row(at: int, ms: float, ran: Sequence[tuple[Candidate, dict[str, int]]]) -> Evaluation:
        kernel, params = kernels[at]
        timings = (WorkloadTiming("default", "eager", (Block(0, ms), Block(1, ms))),)
        return Evaluation(
            kernel.id, params, task.id, target.id, Status.CORRECT, Kind.RACE, timings=timings, facts=racers(ran)
        )

    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        store.create_campaign(
            "recorded", task=task, target=target, language="cpp", seed=0, config={}, descriptor={}, setup={}
        )
        for ticket, (kernel, _) in enumerate(kernels):
            store.record_outcome("recorded", ticket, kernel, [], emitter="sample")
        races = [[row(at, ms, kernels[:2]) for at in range(2)] for ms in (1.0, 2.0)]
        for rows in ([row(at, 4.0, kernels) for at in range(3)], *races):
            store.record_outcome("recorded", None, None, rows)
        served = Recorded(store, task, target)
        assert served.race(kernels[1:], limit_s=1.0) == [], "the recording was cut off before it had one"
        assert served.race(kernels[:2], limit_s=1.0) == races[0]
        assert served.race(kernels[:2], limit_s=1.0) == races[1]
        assert served.race(kernels[:2], limit_s=1.0) == []
        store.record_outcome("recorded", None, None, [row(0, 8.0, kernels[:2])])
        served = Recorded(store, task, target)
        for rows in races:
            assert served.race(kernels[:2], limit_s=1.0) == rows
        with pytest.raises(NotFoundError, match="recorded race"):
            served.race(kernels[:2], limit_s=1.0)


def test_a_point_that_the_judge_failed_on_is_served_as_it_was_tried_again(tmp_path: Path) -> None:
    task, target = Task("t", "x = 1", (Workload("default"),)), Target("cpu", "cpu", 1, "native", {})
    kernel = Candidate("cpp", "int shared;")
    failed = Evaluation(kernel.id, {}, task.id, target.id, Status.HARNESS_ERROR, reason="killed")
    blocks = tuple(Block(process, 1.0, eager_ms=2.0) for process in range(5))
    right = Evaluation(
        kernel.id, {}, task.id, target.id, Status.CORRECT, timings=(WorkloadTiming("default", "eager", blocks),)
    )
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        store.create_campaign("c", task=task, target=target, language="cpp", seed=0, config={}, descriptor={}, setup={})
        for row in (failed, right):
            store.record_outcome("c", 0, kernel, [row], emitter="sample")
        served = Recorded(store, task, target)
        assert [served.trial(kernel, {}, None) for _ in range(3)] == [failed, right, right]
