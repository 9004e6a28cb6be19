"""A store with one finished campaign, made of records, and a way to run the command line in-process."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from evoforge.archives import Descriptor
from evoforge.cli import main
from evoforge.core import Block, Candidate, Evaluation, Kind, Status, Task, TensorSpec, Workload, WorkloadTiming
from evoforge.core import Signature as Sig
from evoforge.evaluation.targets import resolve_target
from evoforge.storage import open_store

TASK_SOURCE = """
import torch
from torch import nn

M = 16

class Model(nn.Module):
    def forward(self, x):
        return x + 1

def get_inputs():
    return [torch.randn(M, 64)]

def get_init_inputs():
    return []
"""


@dataclass(frozen=True)
class Done:
    """What one command line did."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Cli = Callable[..., Done]


@pytest.fixture(autouse=True)
def _interruptible() -> Iterator[None]:
    """A shell has what it starts in the background ignore Ctrl-C, and children inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    def run(*argv: object) -> Done:
        capsys.readouterr()
        status = main([str(word) for word in argv])
        out, err = capsys.readouterr()
        return Done(status, out, err)

    return run


@pytest.fixture
def task_file(tmp_path: Path) -> Path:
    path = tmp_path / "add_one.py"
    path.write_text(TASK_SOURCE)
    return path


PARENT = Candidate("cpp", "// parent\nint evo_run;\n", operator="sample", meta_prompt="bandwidth-first@1")
CHILD = Candidate("cpp", "// child\n", parents=(PARENT.id,), operator="mutate", meta_prompt="one-pass@1")


@pytest.fixture(scope="session")
def _campaign_db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("campaign") / "evoforge.db"
    task = Task("add_one", TASK_SOURCE, (Workload("default"),))
    target = resolve_target("cpu")
    tensor = TensorSpec("in0", (16, 64), (64, 1), "f32")
    signature = Sig((tensor,), (), (TensorSpec("out0", (16, 64), (64, 1), "f32"),))

    def judged(candidate: Candidate, kind: Kind, speedup: float, cell: tuple[int, int, int]) -> Evaluation:
        blocks = tuple(Block(at % 5, 1.0 + 0.0004 * (at - 4.5), speedup * 1.5, speedup) for at in range(10))
        hot = tuple(Block(at, 0.5, 0.75, 0.25) for at in range(3)) if kind is Kind.CONFIRM else ()
        timing = WorkloadTiming("default", "compiled", blocks, bound_ms=0.5, hot=hot)
        return Evaluation(
            candidate.id, {}, task.id, target.id, Status.CORRECT, kind, timings=(timing,), max_error=1e-7, cell=cell,
            seconds={"build": 0.2, "time": 0.5},
        )  # fmt: skip

    with open_store(f"sqlite:///{path}") as store:
        store.create_campaign(
            "first-1",
            task=task,
            target=target,
            language="cpp",
            seed=0,
            config={"task": "add_one.py"},
            descriptor=Descriptor().to_json(),
            setup={"signatures": {"default": signature.to_json()}, "reachable": [[0, 1, 3], [1, 1, 3], [1, 3, 3]]},
        )
        for ticket, (candidate, speedup, cell) in enumerate([(PARENT, 1.3, (0, 1, 3)), (CHILD, 2.0, (1, 3, 3))]):
            rows = [judged(candidate, Kind.TRIAL, speedup, cell), judged(candidate, Kind.CONFIRM, speedup, cell)]
            store.record_outcome("first-1", ticket, candidate, rows, emitter="generator")
        third = Candidate("cpp", "// wrong\n", operator="sample")
        wrong = Evaluation(third.id, {}, task.id, target.id, Status.WRONG, reason="element 3 is off by 2")
        store.record_outcome("first-1", 2, third, [wrong], emitter="generator")
        store.update_campaign("first-1", state="finished", stop_reason="evals", wall_s=12.5)
    return path


@pytest.fixture
def store_url(tmp_path: Path, _campaign_db: Path) -> str:
    copy = tmp_path / "evoforge.db"
    copy.write_bytes(_campaign_db.read_bytes())
    return f"sqlite:///{copy}"
