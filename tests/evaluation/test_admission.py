"""Which tasks are fit to be searched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from evoforge.core import Task, Tolerance
from evoforge.errors import TaskError
from evoforge.evaluation.admission import admit
from evoforge.evaluation.tasks import accepted_controls, load_task
from evoforge.evaluation.worker import ReferenceWorker

TASK = """\
import torch
from torch import nn

MODE = "norm"
SHAPE = (32, 16)
WORKLOADS = [
    {"name": "norm"}, {"name": "zeros", "MODE": "zeros"}, {"name": "constant", "MODE": "constant"},
    {"name": "identity", "MODE": "identity"}, {"name": "half", "MODE": "half"}, {"name": "random", "MODE": "random"},
    {"name": "argmax", "MODE": "argmax"}, {"name": "relu", "MODE": "relu"}, {"name": "parts", "MODE": "parts"},
    {"name": "loss", "MODE": "loss"}, {"name": "steady", "MODE": "steady"}, {"name": "pool", "MODE": "pool"},
    {"name": "counted", "MODE": "counted"}, {"name": "thin", "MODE": "thin", "SHAPE": (4, 10, 27, 1)},
    {"name": "fresh", "MODE": "fresh"}, {"name": "gain", "MODE": "gain"}, {"name": "sign", "MODE": "sign"},
    {"name": "idle", "MODE": "idle"}, {"name": "root", "MODE": "root"}, {"name": "scaled", "MODE": "scaled"},
]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        if MODE == "fresh":
            self.norm = nn.BatchNorm1d(SHAPE[1])
        if MODE == "scaled":
            self.register_buffer("scale", torch.ones(SHAPE[1]))
        if MODE in ("gain", "idle", "root"):
            self.gain = nn.Parameter(torch.zeros(SHAPE[1]))

    def forward(self, x, y, n):
        if MODE == "fresh":  # all but the identity, before training
            return self.norm(y)
        if MODE == "gain":  # zero, before training
            return self.gain * torch.tanh(x)
        if MODE == "idle":  # under any weights
            return torch.relu(self.gain * 0 - 1 - x.abs())
        if MODE == "root":  # of gains below zero: not a number
            return y + torch.sqrt(self.gain) * torch.softmax(x, -1)
        if MODE == "scaled":
            return y * self.scale
        if MODE == "sign":
            return torch.sign(x)
        if MODE == "norm":
            s = x + y
            return torch.layer_norm(s, s.shape[-1:]), s
        if MODE == "zeros":
            return torch.relu(-x.abs() - 1)
        if MODE == "constant":
            return torch.ones_like(x) * 3
        if MODE == "identity":
            return y * 1
        if MODE == "half":
            return x[:, :8].exp().sum(-1)
        if MODE == "parts":
            return x[:, :5].exp(), x[:, 5:11].exp(), x[:, 11:].exp()
        if MODE == "counted":
            return x.exp(), n.prod(-1)
        if MODE == "loss":
            return ((x - y) ** 2).mean()
        if MODE == "steady":
            return (x * 0 + 2).mean().expand(3, 5)
        if MODE == "pool":  # has no kernel for bfloat16
            return torch.nn.functional.avg_pool3d(x.reshape(2, 4, 4, 4, 4), 2)
        if MODE == "random":
            return x + torch.rand(x.shape)
        if MODE == "argmax":
            return x.argmax(-1)
        return torch.relu(x)


def get_inputs():
    return [torch.randn(SHAPE), torch.randn(SHAPE), torch.randint(1, 9, (6, 5))]
"""


POSITIVE = """\
import numpy
import torch
import torch.nn.functional as F
from torch import nn

SHAPE = (64, 384)
MODE = "relu"
WORKLOADS = [
    {"name": "relu"}, {"name": "leaky", "MODE": "leaky"}, {"name": "elu", "MODE": "elu"},
    {"name": "hardtanh", "MODE": "hardtanh"}, {"name": "cumprod", "MODE": "cumprod"}, {"name": "prod", "MODE": "prod"},
    {"name": "dead", "MODE": "dead"}, {"name": "log", "MODE": "log"}, {"name": "clamped", "MODE": "clamped"},
    {"name": "centred", "MODE": "centred"}, {"name": "single", "MODE": "single"},
    {"name": "seeded", "MODE": "seeded"}, {"name": "fixed", "MODE": "fixed"},
]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        if MODE == "dead":
            self.linear = nn.Linear(SHAPE[1], 32)

    def forward(self, x):
        if MODE == "relu":
            return torch.relu(x)
        if MODE == "leaky":
            return F.leaky_relu(x, 0.01)
        if MODE == "elu":
            return F.elu(x)
        if MODE == "hardtanh":
            return F.hardtanh(x)
        if MODE == "cumprod":
            return torch.cumprod(x, 1)
        if MODE == "prod":
            return torch.prod(x, 1)
        if MODE == "dead":  # of numbers in [0, 1) none is left
            return torch.relu(self.linear(x) - 6)
        if MODE == "log":  # of numbers in (0, 1) neither
            return torch.relu(torch.log(x))
        if MODE == "clamped":
            return torch.clamp(torch.clamp(x, max=0), 0, 1)
        if MODE == "centred":
            y = x.amax(1, keepdim=True)
            return F.gelu(y - y.mean(1, keepdim=True))
        if MODE == "single":
            return x.mean(1, keepdim=True).softmax(1)
        return x * 2


def get_inputs():
    if MODE == "seeded":
        torch.manual_seed(0)
        numpy.random.seed(0)
        return [torch.rand(SHAPE) + torch.from_numpy(numpy.random.rand(*SHAPE)).float()]
    return [torch.rand(SHAPE, generator=torch.Generator().manual_seed(0) if MODE == "fixed" else None)]
"""


@pytest.fixture(scope="module")
def positive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceWorker]:
    path = tmp_path_factory.mktemp("tasks") / "positive.py"
    path.write_text(POSITIVE)
    with ReferenceWorker(load_task(str(path))) as worker:
        yield worker


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    path = tmp_path_factory.mktemp("tasks") / "many.py"
    path.write_text(TASK)
    return load_task(str(path))


@pytest.fixture(scope="module")
def worker(task: Task) -> Iterator[ReferenceWorker]:
    with ReferenceWorker(task) as worker:
        yield worker


def reasons(worker: ReferenceWorker, workload: str) -> tuple[str, ...]:
    return admit(worker, {workload: worker.describe()[workload]}, Tolerance()).reasons


@pytest.mark.parametrize(
    "workload", ["norm", "argmax", "relu", "parts", "loss", "pool", "thin", "counted", "fresh", "gain", "sign"]
)
def test_honest_tasks_are_fit(worker: ReferenceWorker, workload: str) -> None:
    signature = worker.describe()[workload]
    admission = admit(worker, {workload: signature}, Tolerance())
    assert admission.fit, admission.reasons
    tried = {control.name for control in admission.controls}
    assert {"the reference itself", "zeros", "constants", "outputs for other inputs"} <= tried
    assert ("outputs computed in half precision" in tried) == (workload not in ("argmax", "sign"))
    if workload == "norm":
        # Each output alone: a kernel could cheat on one of them.
        assert {c.output for c in admission.controls if c.name == "copies of in1"} == {"out0", "out1"}


@pytest.mark.parametrize(
    ("workload", "wrong"),
    [
        ("zeros", "zeros"), ("constant", "constants"), ("steady", "constants"), ("identity", "copies of in1"),
        ("half", "half of the data"), ("idle", "zeros"), ("root", "copies of in1"),
    ],
)  # fmt: skip
def test_a_task_that_a_cheat_passes_is_unfit(worker: ReferenceWorker, workload: str, wrong: str) -> None:
    found = reasons(worker, workload)
    assert any(wrong in reason and "pass for out0" in reason for reason in found), found


@pytest.mark.parametrize("workload", ["relu", "leaky", "elu", "hardtanh", "cumprod", "prod", "dead", "log"])
def test_a_task_is_fit_whose_own_numbers_alone_let_a_cheat_pass(positive: ReferenceWorker, workload: str) -> None:
    """As KernelBench has them, in [0, 1): what would be an elite meets others."""
    assert reasons(positive, workload) == ()


@pytest.mark.parametrize(
    ("workload", "wrong"), [("clamped", "zeros"), ("centred", "zeros"), ("single", "outputs for other inputs")]
)
def test_a_task_is_unfit_whose_answer_is_the_same_for_all_numbers(
    positive: ReferenceWorker, workload: str, wrong: str
) -> None:
    (reason,) = reasons(positive, workload)
    assert wrong in reason and "pass for out0" in reason


def test_seeds_of_the_tasks_own_do_not_fix_its_inputs(positive: ReferenceWorker) -> None:
    assert reasons(positive, "seeded") == ()
    (reason,) = reasons(positive, "fixed")
    assert "get_inputs() returns the same numbers under every seed" in reason


@pytest.mark.parametrize("seed", [0, 1])
def test_what_is_fit_does_not_depend_on_the_seed(worker: ReferenceWorker, seed: int) -> None:
    """Buffers are drawn anew under even seeds only."""
    assert admit(worker, {"scaled": worker.describe()["scaled"]}, Tolerance(), seed=seed).fit


def test_a_random_task_does_not_accept_itself(worker: ReferenceWorker) -> None:
    (reason,) = reasons(worker, "random")
    assert "does not accept itself: two runs on the same inputs differ" in reason


def test_the_verdict_is_kept_by_task_and_tolerance(
    worker: ReferenceWorker, task: Task, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("EVOFORGE_CACHE", str(tmp_path))
    signatures = {name: worker.describe()[name] for name in ("norm", "zeros")}
    first = admit(worker, signatures, Tolerance(), key=task.id)
    asked: list[str] = []
    monkeypatch.setattr(worker, "reference", lambda workload, inputs, weights: asked.append(workload))
    assert admit(worker, signatures, Tolerance(), key=task.id) == first
    assert not first.fit and not asked
    with pytest.raises(AttributeError):  # another tolerance is another question
        admit(worker, signatures, Tolerance(factor=64), key=task.id)
    assert asked == ["norm"]


def test_an_author_may_answer_for_a_control_that_passes(worker: ReferenceWorker) -> None:
    signature = {"zeros": worker.describe()["zeros"]}
    passing = {
        c.name: "the output is always zero" for c in admit(worker, signature, Tolerance()).controls if not c.held
    }
    assert "zeros" in passing
    found = admit(worker, signature, Tolerance(), overrides=passing)
    assert found.fit and any(control.override for control in found.controls)
    assert not admit(worker, signature, Tolerance(), overrides={"outputs for other rows": "x"}).fit


def test_accept_is_read_with_its_reasons() -> None:
    assert accepted_controls('ACCEPT = {"zeros": "masked"}\n', "t.py") == {"zeros": "masked"}
    assert accepted_controls("N = 3\n", "t.py") == {}
    for text in ("ACCEPT = ['zeros']", "ACCEPT = {'zeros': ''}", "ACCEPT = {'zeros': 3}"):
        with pytest.raises(TaskError, match="ACCEPT"):
            accepted_controls(text, "t.py")
