"""What is said of an archive that is measured again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evoforge.archives.descriptor import Descriptor
from evoforge.campaign import _single, bench, check_task
from evoforge.core import Block, Candidate, Evaluation, Kind, Status, Target, Task, Workload, WorkloadTiming
from evoforge.evaluation.tasks import load_task
from evoforge.storage import open_store

EMPTY: dict[str, Any] = {
    "signatures": {}, "trace_signatures": {}, "graphs": {}, "uncovered": "", "unfused": {}, "bounds_ms": {},
    "aa_margin": 0.0, "notices": [],
}  # fmt: skip


@pytest.mark.parametrize(("compiled_ms", "claimed"), [(2.0, 2.0), (8.0, 4.0), (None, None)])
def test_a_bench_claims_over_the_faster_side_what_it_measures_over_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled_ms: float | None, claimed: float | None
) -> None:
    """The campaign's baseline is eager, at 4 ms; its kernel takes 1."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    task, target = Task("t", "x = 1", (Workload("default"),)), Target("cpu", "cpu", 1, "native", {})
    kernel = Candidate("cpp", "int it;")
    blocks = tuple(Block(process, 1.0, 4.0, compiled_ms) for process in range(5))
    trial = Evaluation(
        kernel.id, {}, task.id, target.id, Status.CORRECT,
        timings=(WorkloadTiming("default", "eager", blocks),), cell=(1, 1, 1),
    )  # fmt: skip
    with open_store(url) as store:
        store.create_campaign(
            "c", task=task, target=target, language="cpp", seed=0, config={"task": "t", "baseline": "eager"},
            descriptor=Descriptor().to_json(),
            setup={
                **EMPTY, "baseline": {"default": "eager"},
                "baseline_ms": {"default": {"eager": 4.0, "compiled": compiled_ms}},
            },
        )  # fmt: skip
        store.record_outcome("c", 0, kernel, [trial, replace(trial, kind=Kind.CONFIRM)], emitter="sample")
    judge = SimpleNamespace(bench=lambda *_, **__: [[(0, replace(trial, kind=Kind.BENCH))]])
    monkeypatch.setattr(_single, "check_unchanged", lambda _: None)
    monkeypatch.setattr(_single, "prepare", lambda row, config, setup, *_: (target, judge, setup))
    (row,) = bench("c", url)["rows"]
    assert row["claimed"] == pytest.approx(4.0), "over the campaign's baseline, as ever"
    assert row["claimed_best_baseline"] == (claimed if claimed is None else pytest.approx(claimed))
    if claimed is not None:
        assert row["speedup_best_baseline"] == pytest.approx(claimed)


def test_inputs_that_an_exported_kernel_will_not_take_are_told(tmp_path: Path) -> None:
    path = tmp_path / "task.py"
    path.write_text(
        "import torch\n\n"
        "class Model(torch.nn.Module):\n    def forward(self, x, y):\n        return torch.relu(x) * y\n\n"
        "def get_inputs():\n"
        "    return [torch.randn(64, 128), torch.randn(64, 128, dtype=torch.cfloat).imag]\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    found = check_task(load_task(str(path)))
    assert found["fit"]
    (notice,) = found["notices"]
    assert notice.startswith("default: get_inputs() makes in1 start beside a multiple of 64 bytes")
