"""What is said of a campaign afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from evoforge.campaign import campaigns
from evoforge.core import Block, Candidate, Evaluation, Kind, Status, Target, Task, Workload, WorkloadTiming
from evoforge.storage import open_store


@pytest.mark.parametrize(("compiled_ms", "said"), [(2.0, 2.0), (8.0, 4.0), (None, None)])
def test_the_speed_up_over_the_better_of_both_is_over_the_better_of_both(
    tmp_path: Path, compiled_ms: float | None, said: float | None
) -> None:
    """The campaign's baseline is eager, at 4 ms; its kernel takes 1."""
    task, target = Task("t", "x = 1", (Workload("default"),)), Target("cpu", "cpu", 1, "native", {})
    kernel = Candidate("cpp", "int it;")
    url = f"sqlite:///{tmp_path / 'store.db'}"
    with open_store(url) as store:
        store.create_campaign(
            "c", task=task, target=target, language="cpp", seed=0, config={"baseline": "eager"}, descriptor={},
            setup={
                "baseline": {"default": "eager"}, "baseline_ms": {"default": {"eager": 4.0, "compiled": compiled_ms}},
            },
        )  # fmt: skip
        blocks = tuple(Block(process, 1.0, eager_ms=4.0) for process in range(5))
        rows = [
            Evaluation(
                kernel.id, {}, task.id, target.id, Status.CORRECT, kind,
                timings=(WorkloadTiming("default", "eager", blocks),), cell=(1, 1, 1),
            )
            for kind in (Kind.TRIAL, Kind.CONFIRM)
        ]  # fmt: skip
        store.record_outcome("c", 0, kernel, rows, emitter="sample")
    (row,) = campaigns(url)
    assert row["speedup_best_baseline"] == (said if said is None else pytest.approx(said))
