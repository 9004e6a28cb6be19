"""Reference and baseline processes: real children, tiny tasks."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil
import pytest

from evoforge.core import Task, TensorSpec, Tolerance
from evoforge.errors import EvoforgeError, TaskError, UnsupportedError, UsageError, WorkerError
from evoforge.evaluation.admission import admit
from evoforge.evaluation.check import Samples, check_outputs
from evoforge.evaluation.priority import can_prioritise, prioritise
from evoforge.evaluation.sandbox import LAYERS, reached_layers
from evoforge.evaluation.targets import find_compiler
from evoforge.evaluation.tasks import load_task, parse_set
from evoforge.evaluation.worker import FAMILIES, BaselineWorker, ReferenceWorker, _shared
from evoforge.evaluation.worker_process import scratch_dir
from evoforge.paths import cache_dir

NORM = """\
import torch
from torch import nn

M = 4
N = 8
WIDE = 2 * N
LOG = ""
DTYPE = torch.float32
WORKLOADS = [{"name": "small"}, {"name": "large", "N": 16}, {"name": "half", "DTYPE": "float16"}]
print("loud " * 100_000)


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features).to(DTYPE))
        self.register_buffer("shift", torch.arange(features))

    def forward(self, x, rest, power):
        index, strided = rest["index"], rest["strided"]
        if LOG:
            with open(LOG, "a") as file:
                file.write(f"{self.weight.double().sum().item()} {x.double().sum().item()}\\n")
        y = x * torch.rsqrt(x.pow(power).mean(-1, keepdim=True) + 1e-6) * self.weight
        return {"y": y, "picked": (index + self.shift[:1], strided.t() + 0)}


def get_inputs():
    strided = torch.randn(WIDE, M).t()
    return [torch.randn(M, N).to(DTYPE), {"index": torch.randint(0, 9, (M,)), "strided": strided}, 2]


def get_init_inputs():
    return [N]
"""

ODD = """\
import ctypes
import os
import sys
import time

import torch
from torch import nn

MODE = "good"
SIZE = 4
WORKLOADS = [
    {"name": "good"}, {"name": "forward", "MODE": "forward"}, {"name": "double", "MODE": "double"},
    {"name": "in place", "MODE": "in place"}, {"name": "dict", "MODE": "dict"}, {"name": "exit", "MODE": "exit"},
    {"name": "behind its back", "MODE": "behind its back"}, {"name": "half", "SIZE": 2.5},
    {"name": "number", "MODE": "number"}, {"name": "complex", "MODE": "complex"}, {"name": "huge", "SIZE": 10**7},
]


class Model(nn.Module):
    def forward(self, x):
        if MODE == "forward":
            raise ValueError("no such shape")
        if MODE == "double" and x.dtype == torch.float64:
            raise TypeError("single only")
        if MODE == "in place":
            x += 1
        if MODE == "behind its back" and x.dtype == torch.float32 and x.sum() > 0:
            x.numpy()[0] = 1  # which torch's own count of changes does not see
        return 3.0 if MODE == "number" else x * 2


def get_inputs():
    if MODE == "exit":
        sys.exit("bye")
    if torch.initial_seed() == 666:
        while True:
            time.sleep(0.01)
    if torch.initial_seed() == 667:
        print("about to fall", flush=True)
        ctypes.string_at(0)
    x = torch.randn(SIZE, SIZE).abs() if torch.initial_seed() % 2 else -torch.randn(SIZE, SIZE).abs()
    return {"z": x} if MODE == "dict" else [x.to(torch.complex64) if MODE == "complex" else x]
"""

HELPER = """\
import os
from evoforge.errors import UnsupportedError


def describe(model, inputs):
    return {"training": model.training, "kinds": [type(x).__name__ for x in inputs], "sum": float(inputs[0].sum())}


def refuse(model, inputs):
    raise UnsupportedError("operator aten.topk is not covered")


def fail(model, inputs):
    return {}["missing"]


def environment(model, inputs):
    return dict(os.environ)


def strides(model, inputs):
    return [list(x.stride()) for x in inputs]
"""


def task_of(folder: Path, name: str, text: str) -> Task:
    (folder / "helper_of_task.py").write_text(HELPER)
    path = folder / f"{name}.py"
    path.write_text(text)
    return load_task(str(path))


@pytest.fixture(scope="module")
def norm(tmp_path_factory: pytest.TempPathFactory) -> Task:
    return task_of(tmp_path_factory.mktemp("norm"), "norm", NORM)


@pytest.fixture(scope="module")
def worker(norm: Task) -> Iterator[ReferenceWorker]:
    os.environ["SECRET_API_KEY"] = "sk-123"
    try:
        with ReferenceWorker(norm, seed=5) as worker:
            yield worker
    finally:
        del os.environ["SECRET_API_KEY"]


@pytest.fixture(scope="module")
def odd_task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    return task_of(tmp_path_factory.mktemp("odd"), "odd", ODD)


@pytest.fixture(scope="module")
def odd(odd_task: Task) -> Iterator[ReferenceWorker]:
    with ReferenceWorker(odd_task) as worker:
        yield worker


def test_signatures_follow_the_workloads(worker: ReferenceWorker) -> None:
    signatures = worker.describe()
    assert list(signatures) == ["small", "large", "half"]
    small, large = signatures["small"], signatures["large"]
    assert small.inputs == (
        TensorSpec("in0", (4, 8), (8, 1), "f32"),
        TensorSpec("in1", (4,), (1,), "i64"),
        TensorSpec("in2", (4, 16), (1, 4), "f32"),
    )
    assert small.constants == (TensorSpec("cst0", (8,), (1,), "f32"), TensorSpec("cst1", (8,), (1,), "i64"))
    assert [spec.name for spec in small.outputs] == ["out0", "out1", "out2"]
    assert (small.outputs[1].dtype, small.outputs[2].shape) == ("i64", (16, 4))
    # WIDE is derived from N, so it follows the override.
    assert (large.inputs[0].shape, large.inputs[2].shape) == ((4, 16), (4, 32))
    assert (signatures["half"].inputs[0].dtype, signatures["half"].outputs[0].dtype) == ("f16", "f16")


def test_equal_seeds_give_equal_inputs(worker: ReferenceWorker) -> None:
    first, again, other = (worker.inputs("small", seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first.arrays(), again.arrays(), strict=True))
    assert not np.array_equal(first.array(0), other.array(0))


def test_families_replace_floating_values_only(worker: ReferenceWorker) -> None:
    sets = {family: worker.inputs("large", 3, family) for family in FAMILIES}
    x = {family: shared.array(0) for family, shared in sets.items()}
    assert all(np.array_equal(sets["given"].array(1), shared.array(1)) for shared in sets.values())
    assert len({array.tobytes() for array in x.values()}) == len(FAMILIES)
    assert np.array_equal(x["rows"], np.repeat(x["rows"][:, :1], 16, axis=1))
    assert np.array_equal(2 * x["halves"], np.round(2 * x["halves"])) and np.abs(x["halves"]).max() <= 2
    assert not np.array_equal(x["halves"], np.round(x["halves"]))
    assert np.abs(x["uniform"]).max() <= 1
    assert np.abs(x["wide"]).max() / np.abs(x["wide"]).min() > 1e3
    one_by_one = np.cumsum(np.repeat(x["rows"][..., :1], 65536, axis=-1), axis=-1, dtype=np.float32)[..., -1]
    assert np.array_equal(one_by_one, 65536 * x["rows"][..., 0])  # a row's equal terms are not all rounded to one side
    with pytest.raises(UsageError, match="expected an input family"):
        worker.inputs("large", 3, "odd")


def test_the_reference_is_the_model_in_double_precision(worker: ReferenceWorker) -> None:
    inputs, weights = worker.inputs("small", 7), worker.constants("small")
    found = worker.reference("small", inputs)
    x, index, strided = (array.astype(np.float64) for array in inputs.arrays())
    expected = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * weights.array(0).astype(np.float64)
    y, picked, turned = found.y64.arrays()
    np.testing.assert_allclose(y, expected, rtol=1e-13)
    np.testing.assert_array_equal(picked, index)
    np.testing.assert_array_equal(turned, strided.T)
    assert [spec.dtype for spec in found.y64.specs] == ["f64", "i64", "f64"]
    # One d per floating output: at least the rounding of the result, here not much more.
    assert [spec.name for spec in found.d.specs] == ["out0", "out2"]
    u = 2.0**-24
    assert (found.d.array(0) >= 0.99 * u * np.abs(y)).all() and (found.d.array(0) <= 5 * u * np.abs(y) + 1e-20).all()
    assert 0 < found.ref_error[0] < 1e-6 and found.ref_error[1:] == (0.0, 0.0)
    again = worker.reference("small", inputs)
    assert np.array_equal(again.d.array(0), found.d.array(0))


def test_doubles_beside_single_precision_have_a_scale_of_their_own(tmp_path: Path) -> None:
    text = (
        "import torch\n\ndef Model(x):\n    return torch.tanh(x), torch.tanh(x.double()).sum(1), x.double() * 3\n\n"
        "def get_inputs():\n    return [torch.rand(33, 130) + 0.1]\n"
    )
    with ReferenceWorker(task_of(tmp_path, "mixed", text)) as worker:
        inputs = worker.inputs("default", 0)
        found = worker.reference("default", inputs)
        assert admit(worker, worker.describe(), Tolerance()).fit
        single, summed, scaled = (
            np.median(d / np.abs(y)) for d, y in zip(found.d.arrays(), found.y64.arrays(), strict=True)
        )
    assert 0.5 < single / 2.0**-24 < 8
    assert all(0.05 < one / 2.0**-53 < 8 for one in (summed, scaled))


def test_a_16_bit_reference_is_computed_in_single_precision_and_rounded(worker: ReferenceWorker) -> None:
    inputs = worker.inputs("half", 7)
    found, outputs = worker.reference("half", inputs), worker.outputs("half", inputs)
    y = found.y64.array(0)
    assert outputs.array(0).dtype == np.float16
    # Half an ulp of float16: native half arithmetic would not reach that everywhere.
    assert (np.abs(outputs.array(0) - y) <= np.abs(y) * 2.0**-11 * 1.01).all()
    assert found.ref_error[0] > 1e-5


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_types_that_a_task_names_are_as_wide_as_the_reference(dtype: str, tmp_path: Path) -> None:
    task = task_of(
        tmp_path,
        "named",
        f"""
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(16, 8, dtype=torch.{dtype})

    def forward(self, t, x):
        steps = torch.exp(torch.arange(0, 16, dtype=torch.float32) / -16)
        wave = torch.sin(t[:, None].float() * steps[None]).to(torch.{dtype})
        halves = (torch.full((4, 8), 16128, dtype=torch.int32) << 16).view(torch.float32)
        scores = torch.softmax(self.inner(wave + x), dim=-1, dtype=torch.float32)
        return scores * halves.to(scores.dtype)

def get_inputs():
    return [torch.randint(0, 1000, (4,)), torch.randn(4, 16, dtype=torch.{dtype})]
""",
    )
    with ReferenceWorker(task, seed=1) as worker:
        inputs, weights = worker.inputs("default", 3), worker.constants("default")
        found = worker.reference("default", inputs).y64.array(0)
        t, x, w, b = (_wide(array) for array in (*inputs.arrays(), *weights.arrays()))
        z = (np.sin(t[:, None] * np.exp(np.arange(16) / -16)) + x) @ w.T + b
        expected = np.exp(z) / np.exp(z).sum(-1, keepdims=True) / 2
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_function_that_a_module_keeps_follows_its_copies(tmp_path: Path) -> None:
    task = task_of(
        tmp_path,
        "kept",
        """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({"inner": nn.Linear(16, 8)})
        parts = self.parts
        self.whole = lambda x: parts.inner(x) + self.parts.inner(x)

    def forward(self, x):
        return self.whole(x)

def get_inputs():
    return [torch.randn(4, 16)]
""",
    )
    with ReferenceWorker(task, seed=1) as worker:
        inputs, (w, b) = worker.inputs("default", 3), worker.constants("default").arrays()
        found = worker.reference("default", inputs).y64.array(0)
        expected = 2 * (_wide(inputs.array(0)) @ _wide(w).T + _wide(b))
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("floating", [False, True])
def test_what_is_made_of_integers_is_rounded_where_no_input_is(floating: bool, tmp_path: Path) -> None:
    """A task's tolerance follows how inputs' rounding moves its outputs; positions have none of their own."""
    task = task_of(
        tmp_path,
        "positions",
        f"""
import torch

def Model(t, *x):
    return torch.sin(t[:, None].float() * 1000) + sum(x)

def get_inputs():
    return [torch.arange(1, 65)] + [torch.randn(64, 1)] * {int(floating)}
""",
    )
    with ReferenceWorker(task, seed=1) as worker:
        d = worker.reference("default", worker.inputs("default", 3)).d.array(0)[:, 0]
    expected = 1000 * np.arange(1, 65) * np.abs(np.cos(1000 * np.arange(1, 65.0))) * 2.0**-24
    assert (np.median(d / expected) > 0.5) == (not floating)


def _wide(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.dtype == np.uint16:  # bfloat16
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float64)


def test_half_precision_outputs_are_worse(worker: ReferenceWorker) -> None:
    inputs = worker.inputs("small", 7)
    y = worker.reference("small", inputs).y64.array(0)
    error = {p: np.abs(worker.outputs("small", inputs, p).array(0) - y).max() for p in ("fp32", "bf16")}
    assert error["fp32"] < 1e-5 < 1e-3 < error["bf16"]


def test_analyse_calls_a_function_of_the_tasks_folder(worker: ReferenceWorker) -> None:
    found = worker.analyse("helper_of_task:describe", "small")
    assert found["training"] is False and found["kinds"] == ["Tensor", "dict", "int"]
    with pytest.raises(UnsupportedError, match=r"^operator aten\.topk is not covered$"):
        worker.analyse("helper_of_task:refuse", "small")
    with pytest.raises(WorkerError, match=r"analyse failed with KeyError: 'missing' \(helper_of_task.py:14\)"):
        worker.analyse("helper_of_task:fail", "small")


def test_what_is_analysed_is_laid_out_as_kernels_get_it(tmp_path: Path) -> None:
    text = """\
import torch


def Model(x, y):
    return (x + y) * x.stride(1)


def get_inputs():
    return [torch.randn(1, 5).expand(3, 5).t(), torch.randn(3, 5).t()]
"""
    task = task_of(tmp_path, "laid", text)
    with ReferenceWorker(task) as worker:
        strides = worker.analyse("helper_of_task:strides", "default")
        specs = worker.describe()["default"].inputs
    assert strides == [list(spec.stride) for spec in specs] == [[3, 1], [1, 5]]


def test_the_environment_is_scrubbed_and_the_allocator_keeps_its_memory(worker: ReferenceWorker) -> None:
    environment = worker.analyse("helper_of_task:environment", "small")
    assert "sk-123" not in environment.values()
    assert environment["MALLOC_MMAP_MAX_"] == "0" and environment["OMP_NUM_THREADS"] == "1"


BATCH_NORM = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = torch.nn.Linear(8, 8)
        self.norm = torch.nn.BatchNorm1d(8)
        self.register_buffer("mask", torch.tensor([1.0, 0.0] * 4))

    def forward(self, x):
        return self.norm(self.mix(x)) * self.mask


def get_inputs():
    return [torch.randn(4, 8)]


def get_init_inputs():
    return []
"""


def test_redrawn_weights_differ_wherever_a_model_can_be_trained(tmp_path: Path) -> None:
    """Scales of one, shifts of zero and running statistics move too."""
    (tmp_path / "task.py").write_text(BATCH_NORM)
    with ReferenceWorker(load_task(str(tmp_path / "task.py"))) as worker:
        own, others = worker.constants("default"), worker.constants("default", weights=5)
        moved = {
            spec.name: not np.array_equal(a, b)
            for spec, a, b in zip(own.specs, own.arrays(), others.arrays(), strict=True)
        }
        # mix.weight, mix.bias, norm.weight, norm.bias; mask, running_mean, running_var, num_batches_tracked
        assert list(moved.values()) == [True] * 4 + [False, True, True, False]
        assert (others.array(6) > 0).all()
        scales, tame = others.array(2), worker.constants("default", weights=7).array(2)
        assert (scales < -0.4).any() and (np.abs(scales) > 3).any() and (np.abs(tame - 1) < 1).all(), "as in training"
        variances = others.array(6) / own.array(6)
        assert variances.min() < 2.0**-9 < 0.1 < variances.max(), "as of a dead channel"
        mask = worker.constants("default", weights=4).array(4)  # under even seeds it is scaled
        assert (mask[::2] != 1).all() and (mask[1::2] == 0).all()
        inputs = worker.inputs("default", 1)
        ours = worker.reference("default", inputs).y64.array(0)
        theirs = worker.reference("default", inputs, weights=5).y64.array(0)
        assert not np.allclose(ours[:, ::2], theirs[:, ::2])
        again = worker.reference("default", inputs).y64.array(0)
        assert np.array_equal(ours, again)


PATTERNS = """
import copy

import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(16, 16, bias=False))
        self.second = copy.deepcopy(self.first)
        self.lower = torch.nn.Parameter(torch.tril(torch.randn(16, 16)))
        self.scale = torch.nn.Parameter(torch.rand(16))
        self.register_buffer("state", torch.zeros(16))

    def forward(self, x):
        return self.second(self.first(x)) @ self.lower * self.scale + self.state


def get_inputs():
    return [torch.randn(4, 16)]


def get_init_inputs():
    return []
"""


def test_redrawn_weights_have_no_pattern_of_their_initialisation(tmp_path: Path) -> None:
    """Equal layers, lengths kept beside directions, triangles of zeros, one sign, buffers of zeros."""
    (tmp_path / "task.py").write_text(PATTERNS)
    with ReferenceWorker(load_task(str(tmp_path / "task.py"))) as worker:
        lower, scale, g, v, second_g, second_v, state = worker.constants("default", weights=4).arrays()
        assert np.triu(lower, 1)[np.triu_indices(16, 1)].all() and state.all()
        assert (scale < 0).any() and (scale > 0).any()
        assert not np.allclose(v, second_v) and not np.allclose(g, second_g)
        assert not np.allclose(g[:, 0], np.linalg.norm(v, axis=1), rtol=0.02)
        anew = worker.constants("default", weights=7).array(0)  # the last of four leaves what differs as it is made
        assert not np.triu(anew, 1).any() and not np.array_equal(anew, worker.constants("default").array(0))


LARGE = """
import torch

def Model(x):
    return x * x

def get_inputs():
    return [torch.randn(4, 8, dtype=torch.float64) * 1e60]
"""


def test_large_numbers_in_double_precision_have_a_tolerance(tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text(LARGE)
    with ReferenceWorker(load_task(str(tmp_path / "task.py"))) as worker:
        reference = worker.reference("default", worker.inputs("default", 1))
    d, y = reference.d.array(0), np.abs(reference.y64.array(0))
    assert (d >= 2.0**-53 * y).all() and (d <= 2.0**-50 * y + 2.0**-58 * y.max()).all()


UNTRAINED = """
import torch

class Model(torch.nn.Module):
    def __init__(self, bearable):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(8)
        self.gain = torch.nn.Parameter(torch.zeros(()))
        self.heat = torch.nn.Parameter(torch.tensor(0.07))
        self.steps = torch.nn.Parameter(torch.linspace(0, 1, 8))
        self.bearable = bearable

    def forward(self, x):
        if not self.bearable:
            return x + (self.gain - self.gain.abs()).sqrt() + (self.norm.weight - self.norm.weight.max()).sqrt()
        return x + self.gain * self.norm(x) / self.heat + self.steps

def get_inputs():
    return [torch.randn(4, 8)]

def get_init_inputs():
    return [BEARABLE]

BEARABLE = True
WORKLOADS = [{"name": "bears"}, {"name": "breaks", "BEARABLE": False}]
"""


def test_weights_that_say_nothing_before_training_are_moved(tmp_path: Path) -> None:
    """Gains of zero and one and fresh statistics, not what somebody chose; and only where the outputs stay finite."""
    (tmp_path / "task.py").write_text(UNTRAINED)
    with ReferenceWorker(load_task(str(tmp_path / "task.py"))) as worker:
        bears, breaks = (worker.constants(name).arrays() for name in ("bears", "breaks"))
    # gain, heat, steps; norm.weight, norm.bias; running_mean, running_var, num_batches_tracked
    untrained = [0.0, 0.07, np.linspace(0, 1, 8), 1.0, 0.0, 0.0, 1.0, 0]
    assert [bool(np.allclose(a, b)) for a, b in zip(breaks, untrained, strict=True)] == [True] * 8
    assert [bool(np.allclose(a, b)) for a, b in zip(bears, untrained, strict=True)] == [
        False, True, True, False, False, False, False, True,
    ]  # fmt: skip
    assert (bears[6] > 0).all() and (bears[3] != 1).all()


PLAIN_TENSORS = """
import torch

class Model(torch.nn.Module):
    hidden = None

    def __init__(self):
        super().__init__()
        self.mix = torch.nn.LSTM(4, 4)
        self.shift, self.scales = torch.randn(4), [torch.randn(4), torch.randn(4)]
        self.one, self.rotation = torch.tensor(1.0), torch.randn(3, dtype=torch.complex64)
        self.mask, self.part, self.wide = torch.tril(torch.ones(3, 3)), torch.arange(9.0)[1:5], torch.ones(1).expand(4)
        self.weight, self.hidden = self.mix.weight_ih_l0.data[0], torch.randn(4)

    def forward(self, x):
        mixed = self.mix(x)[0] * self.weight * self.rotation.abs().sum() * self.hidden
        return self.mask @ mixed, self.shift * self.part + self.wide, self.scales[0] + self.scales[1] * self.one

def get_inputs():
    return [torch.randn(3, 4)]
"""


def test_tensors_that_are_plain_attributes_are_constants_of_the_task(tmp_path: Path) -> None:
    """Drawn anew with the weights. Those in a list are not seen, and stay: they are numbers in a kernel's source."""
    (tmp_path / "task.py").write_text(PLAIN_TENSORS)
    with ReferenceWorker(load_task(str(tmp_path / "task.py"))) as worker:
        specs = worker.constants("default").specs
        # weights and biases of the LSTM; shift, mask, part, wide
        assert [one.shape for one in specs] == [(16, 4), (16, 4), (16,), (16,), (4,), (3, 3), (4,), (4,)]
        assert all(one.stride[-1] == 1 for one in specs)
        inputs = worker.inputs("default", 1)
        ours, theirs = worker.reference("default", inputs).y64, worker.reference("default", inputs, weights=5).y64
        assert not np.allclose(ours.array(0), theirs.array(0)) and not np.allclose(ours.array(1), theirs.array(1))
        assert np.array_equal(ours.array(2), theirs.array(2))


def test_top_level_tensors_that_forward_reads_are_constants_of_the_task(tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text(
        """\
import torch

N = 9
MASK = torch.tril(torch.ones(N, N)).bool()
SCALES, DATA, ONE, PART = torch.rand(N), torch.randn(4, N), torch.tensor(2.0), torch.rand(N, 2)[:, 0]


def scaled(x):
    return x * SCALES


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.kept = torch.nn.Parameter(torch.rand(N)), SCALES[:4].clone()

    def forward(self, x):
        return scaled(x * self.weight)[:, None].masked_fill(~MASK, 0.0).sum(-1) * ONE + PART


def get_inputs():
    return [DATA + 0]
"""
    )
    task = load_task(str(tmp_path / "task.py"))
    with ReferenceWorker(task) as worker:
        constants = worker.constants("default")
        assert [(one.shape, one.dtype) for one in constants.specs] == [
            ((9,), "f32"), ((4,), "f32"), ((9, 9), "bool"), ((9,), "f32"),
        ]  # fmt: skip
        inputs = worker.inputs("default", 1)
        weight, _, mask, scales = (constants.array(at).astype(np.float64) for at in range(4))
        part = worker.reference("default", inputs).y64.array(0) - 2 * (
            (inputs.array(0) * weight * scales)[:, None] * mask
        ).sum(-1)
        assert np.allclose(part, part[0]) and part.std() > 0.1
        graph = worker.analyse("evoforge.lowering.capture:capture", "default")
        assert "cst2" in str(graph) and "cst3" in str(graph)


def test_shared_memory_of_others_is_out_of_reach(tmp_path: Path) -> None:
    other = Path(tempfile.mkstemp(prefix="evoforge-test-", dir="/dev/shm")[1])
    try:
        attempt = f"try:\n    open({str(other)!r}, 'w').write('gone')\nexcept OSError:\n    pass\n"
        text = PLAIN_TENSORS.replace("import torch\n", f"import torch\n{attempt}")
        (tmp_path / "task.py").write_text(text)
        with ReferenceWorker(load_task(str(tmp_path / "task.py"))) as worker:
            assert worker.constants("default").specs
        assert other.read_text() == ""
    finally:
        other.unlink()


def test_every_process_of_a_campaign_has_the_same_weights(norm: Task, worker: ReferenceWorker) -> None:
    log = scratch_dir() / "log"
    assert norm.path is not None
    task = load_task(norm.path, {"LOG": str(log)})
    sets = [worker.inputs("small", seed) for seed in (1, 2, 3)]
    with BaselineWorker(task, side="eager", seed=5) as eager:
        eager.prepare("small", sets)
        assert eager.ready(60)
        log.unlink()
        assert eager.run("small", 7, 2) > 0
        assert eager.empty() > 0
        rows = [line.split() for line in log.read_text().splitlines()]
        with pytest.raises(WorkerError, match="expected workload large to be prepared"):
            eager.run("large", 1, 0)
        # What the judge writes into a set later, the baseline reads.
        sums = [shared.array(0).astype(np.float64).sum() for shared in sets]
        sets[0].array(0)[...] = 0
        eager.run("small", 1, 0)
        assert float(log.read_text().splitlines()[-1].split()[1]) == 0
    weight = worker.constants("small").array(0).astype(np.float64).sum()
    assert [float(row[0]) for row in rows] == pytest.approx([weight] * 7, rel=1e-12)
    assert [float(row[1]) for row in rows] == pytest.approx([sums[(2 + i) % 3] for i in range(7)])


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        ("(x * scale).argmax(-1)", {(0, 0, 2), (0, 2, 1)}),
        ("torch.max(x * scale, dim=1)[1]", {(0, 0, 2), (0, 2, 1)}),
        ("torch.argmin(-(x * scale).t(), dim=0)", {(0, 0, 2), (0, 2, 1)}),
        ("(x * scale).argmax()", {(0, 0, 2)}),  # of all; 1.0 at place 0
        ("x.argmax(-1)", set()),  # inputs as they came: exact
        ("(x.round() * 10).long().argmax(-1)", set()),  # integers: exact
        ("(x * 1e7).round().long().argmax(-1)", {(0, 0, 2), (0, 2, 1)}),  # unless a rounding made them
        ("(x * scale).argmax(-1).int()", {(0, 0, 2), (0, 2, 1)}),
        ("(x * scale).argmax(-1) + 0", {(0, 0, 2), (0, 2, 1)}),  # no place any more, for all that is known
    ],
)
def test_indices_of_computed_values_that_lie_close_serve_as_well(
    tmp_path: Path, taken: str, expected: set[tuple[int, ...]]
) -> None:
    (tmp_path / "close.py").write_text(
        f"""\
import torch


def Model(x, scale):
    return {taken}


def get_inputs():
    return [torch.rand(3, 4), torch.ones(1)]
"""
    )
    near = 1 - 2.0**-22
    with ReferenceWorker(load_task(str(tmp_path / "close.py")), seed=1) as worker:
        inputs = worker.inputs("default", 1)
        # Close values, equal values (the first counts), close values behind; 1e-3 is not close.
        inputs.array(0)[...] = [[1, 0.999, near, 0], [0.5, 0.5, 0.1, 0], [0.3, 0.7 * near, 0.2, 0.7]]
        inputs.array(1)[...] = 1
        reference = worker.reference("default", inputs)
        found = {tuple(row) for array in reference.also.arrays() for row in array.tolist()}
        assert found == expected


@pytest.mark.parametrize(
    ("taken", "served", "wrong"),
    [
        ("x.topk(4).indices", [[2, 0, 4, 1], [0, 2, 3, 4]], [[0, 0, 1, 3], [0, 1, 2, 3], [0, 2, 1, 5], [0, 2, 1, -1]]),
        ("torch.topk(x * scale, 2, 1, False)[1]", [[4, 1], [3, 4]], [[4, 4], [4, 0]]),
        ("torch.sort(x.t().contiguous(), dim=0)[1]", [[4, 1, 3, 2, 0]], [[4, 4, 3, 2, 0], [4, 1, 2, 3, 0]]),
        ("x.expand(2, 5).contiguous().unsqueeze(2).argsort(1, True)", [[2, 0, 4, 1, 3, 0, 2, 1, 3, 4]],
         [[2, 0, 4, 1, 3, 0, 0, 1, 3, 4]]),
        ("x.kthvalue(2, -1, True)[1]", [[1], [4]], [[0]]),
        ("x.expand(2, 5).contiguous().t().sort(0).indices", [[4, 1, 3, 3, 1, 4, 0, 2, 2, 0]], [[4, 1] * 5]),
        ("x.expand(2, 5).contiguous().t().sort(0).indices.contiguous()", [[4, 1, 3, 3, 1, 4, 0, 2, 2, 0]], [[4] * 10]),
        ("(x * scale).median(-1)[1]", [[1], [3], [4]], [[2]]),
        ("x.sort(stable=True)[1]", [[1, 3, 4, 0, 2]], [[3, 1, 4, 0, 2]]),
        ("torch.argsort(x.expand(2, 5).t().contiguous(), axis=0)", [[4, 1, 3, 3, 1, 4, 0, 2, 2, 0]], [[4, 1] * 5]),
        ("x.topk(x.topk(4).indices.shape[1]).indices.squeeze(0).int()", [[2, 0, 4, 1]], [[0, 0, 1, 3]]),
        ("((x * scale).long() * 2**57 + torch.arange(5) // 3).argsort(-1)", [[1, 4, 3, 2, 0]], [[3, 1, 4, 0, 2]]),
        ("x.argmax(-1)", [[0]], [[2]]),
        ("x.topk(2).indices.add_(3)", [[3, 5]], [[5, 3], [4, 5]]),  # no longer places in x
    ],
)  # fmt: skip
def test_which_of_equal_values_is_named_is_free_where_torch_does_not_say(
    tmp_path: Path, taken: str, served: list[list[int]], wrong: list[list[int]]
) -> None:
    (tmp_path / "ties.py").write_text(
        f"""\
import torch


def Model(x, scale):
    return {taken}


def get_inputs():
    return [torch.rand(1, 5), torch.ones(1)]
"""
    )
    with ReferenceWorker(load_task(str(tmp_path / "ties.py")), seed=1) as worker:
        inputs = worker.inputs("default", 1)
        inputs.array(0)[...] = [5, 1, 5, 1, 1]
        inputs.array(1)[...] = 1
        reference, outputs = worker.reference("default", inputs), worker.outputs("default", inputs)
        array = outputs.array(0)
        assert check_outputs(outputs, reference, Tolerance()).passed
        for right, indices in ((True, served), (False, wrong)):
            for one in indices:
                array[...] = np.reshape(one, array.shape)
                assert check_outputs(outputs, reference, Tolerance()).passed == right, one
        sample = Samples(outputs, np.random.default_rng(0))
        array[...] = np.reshape(served[-1], array.shape)
        assert sample.check(reference, Tolerance()).passed


@pytest.mark.parametrize(
    ("body", "moot"),
    [
        ("best = x.topk(2)\n    return torch.zeros_like(x).scatter(-1, best.indices, best.values)", "order"),
        ("best = x.topk(2)\n    return x.gather(-1, best.indices) - best.values.exp(), best.indices", ""),
        ("return x.sort(stable=True).indices.float()", ""),
        ("return x.topk(2, sorted=False).indices", "order"),
        ("return x.topk(2, -1, True, False).values.sum(-1)", ""),
        ("return x.argsort(-1).add_(1)", "order"),
        ("return torch.cat([x, torch.zeros(1, 300)], -1).topk(4, sorted=False).indices", "order"),
        ("return torch.zeros_like(x, dtype=torch.bool).scatter(-1, x.argsort(-1)[:, :1], True)", "order"),
        ("return (x * torch.arange(5)).gather(-1, x.topk(3).indices).topk(2).indices", "order"),
        ("return torch.vmap(lambda row: row.topk(2).values)(x)", ""),
        ("return torch.vmap(lambda row: (row.softmax(-1) * 9).int() + row.cumprod(-1))(x)", ""),
        (
            "best = (x * 2).long().argsort(-1)\n    return torch.zeros_like(x).scatter(-1, best, x.cumsum(-1)), best",
            "order",
        ),
        ("order = x.sort(-1)\n    return torch.zeros_like(x).scatter(-1, order[1], order[0].cumsum(-1))", "order"),
    ],
)
def test_what_rests_on_the_order_of_equal_values_is_moot_and_no_task(tmp_path: Path, body: str, moot: str) -> None:
    """Unless torch says which of them comes first, or it does not matter."""
    (tmp_path / "order.py").write_text(
        f"""\
import torch


def Model(x):
    {body}


def get_inputs():
    return [torch.tensor([[5.0, 1.0, 5.0, 1.0, 5.0]])]
"""
    )
    with ReferenceWorker(load_task(str(tmp_path / "order.py")), seed=1) as worker:
        assert worker.reference("default", worker.inputs("default", 1)).moot == moot
        found = admit(worker, worker.describe(), Tolerance())
        assert any("which of equal values" in reason for reason in found.reasons) == bool(moot)


def test_an_order_of_computed_values_names_each_only_once(tmp_path: Path) -> None:
    """Equal values here, values that lie close there, and an index that is returned twice."""
    (tmp_path / "ranks.py").write_text(
        """\
import torch

def Model(x, scale):
    y = x * scale
    stable, loose = y.sort(dim=-1, stable=True).indices, y.sort(-1).indices
    return stable, loose, y, loose


def get_inputs():
    return [torch.rand(1, 5), torch.ones(1)]
"""
    )
    with ReferenceWorker(load_task(str(tmp_path / "ranks.py")), seed=1) as worker:
        inputs = worker.inputs("default", 1)
        inputs.array(0)[...] = [[1 - 2.0**-22, 1, 0.5, 0.5, 0.1]]
        inputs.array(1)[...] = 1
        reference, outputs = worker.reference("default", inputs), worker.outputs("default", inputs)

        def passes(at: int, indices: list[int]) -> bool:
            before = outputs.array(at).copy()
            outputs.array(at)[...] = [indices]
            passed = check_outputs(outputs, reference, Tolerance()).passed
            outputs.array(at)[...] = before
            return passed

        assert passes(0, [4, 2, 3, 1, 0]) and not passes(0, [4, 3, 2, 0, 1]) and not passes(0, [4, 2, 3, 0, 0])
        for at in (1, 3):
            assert passes(at, [4, 3, 2, 0, 1]) and passes(at, [4, 3, 2, 1, 0]) and not passes(at, [4, 3, 2, 1, 1])


def test_tuples_that_replace_tuples_arrive_as_such(tmp_path: Path) -> None:
    text = (
        "import torch\n\nshape = (3, 4)\nWORKLOADS = [{'name': 'given'}, {'name': 'own', 'shape': (5, 2)}]\n\n"
        "def Model(x):\n    return x * {(3, 4): 1, (5, 2): 2, (6, 7, 8): 3}[shape]\n\n"
        "def get_inputs():\n    return [torch.rand((2,) + shape)]\n"
    )
    path = tmp_path / "shaped.py"
    path.write_text(text)
    name, value = parse_set("shape=(6, 7, 8)")
    for overrides, wanted in (({}, [(2, 3, 4), (2, 5, 2)]), ({name: value}, [(2, 6, 7, 8)])):
        with ReferenceWorker(load_task(str(path), overrides)) as worker:
            assert [one.outputs[0].shape for one in worker.describe().values()] == wanted


NAMES_A_GPU = """\
import torch
from torch import nn

torch.set_default_device("cuda")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x):
        steps = torch.arange(4, device="cuda") + torch.zeros(4).cuda()
        mask = torch.ones(4).to("cuda") if x.device.type == "cpu" else None
        return self.linear(x) * mask + steps.to(torch.device("cuda:0"))


def get_inputs():
    return [torch.rand(64, 8, device="cuda")]


def get_init_inputs():
    return []
"""


def test_what_forward_puts_on_a_gpu_stays_here(tmp_path: Path) -> None:
    task = task_of(tmp_path, "names_gpu", NAMES_A_GPU)
    with (
        ReferenceWorker(task) as worker,
        BaselineWorker(task, side="eager") as eager,
        BaselineWorker(task, side="compiled") as compiled,
    ):
        inputs = worker.inputs("default", 1)
        weight, bias = (one.astype(np.float64) for one in worker.constants("default").arrays())
        right = inputs.array(0).astype(np.float64) @ weight.T + bias + np.arange(4)
        assert worker.reference("default", inputs).y64.array(0) == pytest.approx(right)
        assert worker.outputs("default", inputs, "bf16").array(0) == pytest.approx(right, rel=0.1, abs=0.1)
        assert worker.analyse("evoforge.lowering.capture:capture", "default")
        for baseline in (eager, compiled):
            baseline.prepare("default", [inputs])
            assert baseline.ready(120)
            assert baseline.run("default", 5, 0) > 0


def test_what_a_task_puts_on_a_gpu_stays_here(tmp_path: Path) -> None:
    (tmp_path / "gpu.py").write_text(
        """\
import torch
from torch import nn

SHIFT = torch.ones(4, device="cuda")


class Model(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.linear = nn.Linear(8, 4, device=torch.device("cuda", 0)).cuda().to("cuda:0", torch.float32)
        self.scale = scale

    def forward(self, x, y):
        return self.linear(x) * self.scale + SHIFT + y.float()


def get_inputs():
    return [torch.rand(3, 8, device="cuda"), torch.rand(3, 4).to(torch.half).cuda()]


def get_init_inputs():
    return [torch.full((4,), 2.0, device=0)]
"""
    )
    with ReferenceWorker(load_task(str(tmp_path / "gpu.py")), seed=1) as worker:
        signature = worker.describe()["default"]
        assert [spec.dtype for spec in signature.inputs] == ["f32", "f16"]
        inputs = worker.inputs("default", 1)
        x, y = (inputs.array(at).astype(np.float64) for at in (0, 1))
        weight, bias = (worker.constants("default").array(at).astype(np.float64) for at in (0, 1))
        assert worker.reference("default", inputs).y64.array(0) == pytest.approx((x @ weight.T + bias) * 2 + 1 + y)


@pytest.mark.parametrize(
    ("workload", "kind", "message"),
    [
        (
            "forward",
            TaskError,
            r"odd\.py:22: expected forward\(\) of workload 'forward' to run, it raised ValueError: no",
        ),
        ("in place", UnsupportedError, r"odd\.py:26: workload 'in place': forward\(\) changes input 0 in place"),
        ("dict", TaskError, r"expected get_inputs\(\) to return a list, or a dict.*argument:? '[xz]'"),
        (
            "exit",
            TaskError,
            r"odd\.py:34: expected get_inputs\(\) of workload 'exit' .* SystemExit: bye",
        ),
        ("half", TaskError, r"it raised TypeError: randn\(\) received an invalid combination of arguments[^:]*\)$"),
        ("number", TaskError, r"expected forward\(\) to return tensors, output 0 is float"),
        ("complex", UnsupportedError, r"input 0 is complex64, which is not covered"),
        ("huge", TaskError, r"fits into the .* GiB of memory available, it needs at least .* GiB .*--set"),
    ],
)
def test_what_cannot_be_a_task_is_refused_with_the_reason(
    odd: ReferenceWorker, workload: str, kind: type[EvoforgeError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        odd.inputs(workload, 0)
    assert odd.inputs("good", 0).array(0).shape == (4, 4)  # the process is none the worse


def test_a_model_that_fails_in_double_is_refused_with_the_reason(odd: ReferenceWorker) -> None:
    inputs = odd.inputs("double", 0)
    with pytest.raises(TaskError, match=r"odd\.py:24: expected forward\(\) in double precision.*: single only"):
        odd.reference("double", inputs)


def test_an_endless_task_is_killed_and_the_stage_named(odd_task: Task) -> None:
    with ReferenceWorker(odd_task) as worker:
        worker.inputs("good", 0)
        worker.timeout_s = 0.5
        with pytest.raises(WorkerError, match=r"did not finish making inputs .* within 0\.5 s, at: get_inputs\(\)"):
            worker.inputs("good", 666)
        assert ended(worker.pid)
        with pytest.raises(WorkerError, match="did not finish"):
            worker.inputs("good", 0)


def test_a_crash_is_reported_with_the_last_lines(odd_task: Task) -> None:
    with ReferenceWorker(odd_task) as worker, pytest.raises(WorkerError, match=r"(?s)SIGSEGV.*about to fall"):
        worker.inputs("good", 667)


def test_a_task_that_writes_to_its_inputs_is_told_so_and_changes_nothing(odd_task: Task) -> None:
    with ReferenceWorker(odd_task) as worker, BaselineWorker(odd_task, side="eager") as eager:
        kept = worker.inputs("behind its back", 1)
        before = kept.array(0).copy()
        with pytest.raises(WorkerError, match=r"(?s)SIGSEGV; a task that writes to its inputs.*forward"):
            worker.reference("behind its back", kept)
        eager.prepare("behind its back", [kept])
        with pytest.raises(WorkerError, match="SIGSEGV; a task that writes to its inputs"):
            eager.ready(60)
    np.testing.assert_array_equal(kept.array(0), before)


@pytest.mark.parametrize(
    "said",
    [
        '"[" * 100_000',
        "'[1]'",
        "'null'",
        "'nothing'",
        "'{}'",
        """'{"error": 1}'""",
        """'{"error": {"type": "os"}}'""",
        """'{"error": {"type": "__name__", "message": "x"}}'""",
        """'{"signatures": {"default": 3}}'""",
    ],
)
def test_a_task_that_answers_in_place_of_its_worker_only_loses_it(tmp_path: Path, said: str) -> None:
    text = f"import os, struct\nsaid = ({said}).encode()\nos.write(3, struct.pack('<I', len(said)) + said)\n" + SCALE
    with (
        ReferenceWorker(task_of(tmp_path, "liar", text)) as worker,
        pytest.raises(WorkerError, match=r"broke its protocol|died|^x$"),
    ):
        worker.describe()


SHRINKING = """\
import os
import threading
import time

import torch
from evoforge.evaluation import worker_main

given, kept = worker_main._given, []


def keeping(*shared):
    answer, fds = given(*shared)
    kept.extend(os.dup(fd) for fd in fds)
    return answer, fds


def Model(x):
    for fd in kept:
        os.ftruncate(fd, 0)
    return x + 1


def get_inputs():
    worker_main._given = keeping
    return [torch.ones(4096, 4)]
"""


def test_a_worker_cannot_take_back_what_it_gave(tmp_path: Path) -> None:
    """Memory that was cut off while it is mapped would end the judge (SIGBUS)."""
    with ReferenceWorker(task_of(tmp_path, "shrinking", SHRINKING)) as worker:
        inputs = worker.inputs("default", 0)
        with pytest.raises(TaskError, match="Operation not permitted"):
            worker.outputs("default", inputs)
        assert inputs.array(0).sum() == 4 * 4096


TIED = """
import torch


def Model(x, keys):
    return x.gather(-1, keys.argsort(-1))


def get_inputs():
    keys = torch.randn(40, 64)
    keys[3, 7] = keys[3, 50]
    return [torch.randn(40, 64), keys]
"""


def test_equal_keys_that_torch_itself_turns_round_are_nobodys_order_either(tmp_path: Path) -> None:
    """Its own sort is not a stable one: the other way round may be the very way it names two of them."""
    (tmp_path / "ranks.py").write_text(
        "import torch\n\n\ndef Model(x):\n    return x.argsort(-1).argsort(-1)\n\n\n"
        "def get_inputs():\n    x = torch.randn(1, 64)\n    x[0, torch.randint(64, ())] = x[0, 7]\n"
        "    return [x]\n"
    )
    with ReferenceWorker(load_task(str(tmp_path / "ranks.py"))) as worker:
        for seed in range(150):
            inputs = worker.inputs("default", seed)
            tied = np.unique(inputs.array(0)).size < 64
            reference = worker.reference("default", inputs)
            assert (reference.moot == "order") == tied
            inputs.close(), reference.close()


def test_two_equal_keys_are_enough_for_an_order_that_nobody_defines(tmp_path: Path) -> None:
    with ReferenceWorker(task_of(tmp_path, "tied", TIED)) as worker:
        worker.describe()
        assert {worker.reference("default", worker.inputs("default", seed)).moot for seed in range(8)} == {"order"}


FORGED = """\
import torch
from evoforge.evaluation import worker_main

answers_of, dense = worker_main.answers_of, worker_main._contiguous
worker_main._contiguous = lambda spec, dtype: dense(type(spec)(spec.name, (1,), (1,), spec.dtype), dtype)


def forged(*given, **named):
    found = answers_of(*given, **named)
    object.__setattr__(found, "y64", [one.reshape(-1)[:1].clone() for one in found.y64])
    object.__setattr__(found, "d", [one.reshape(-1)[:1].clone() for one in found.d])
    return found


worker_main.answers_of = forged


def Model(x):
    return x + 1


def get_inputs():
    return [torch.ones(4096, 4)]
"""


def test_answers_must_be_what_was_described(tmp_path: Path) -> None:
    """The judge compares memory with memory: beyond the end of a smaller one it would end."""
    with ReferenceWorker(task_of(tmp_path, "forged", FORGED)) as worker:
        signatures, inputs = worker.describe(), worker.inputs("default", 0)
        with pytest.raises(WorkerError, match="others than the 1 that were described"):
            worker.reference("default", inputs)
    another = ReferenceWorker(task_of(tmp_path, "forged", FORGED), signatures=signatures)
    with another, pytest.raises(WorkerError, match="others than the 1 that were described"):
        another.reference("default", inputs)


ASSIGNING = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.h0, self.c0 = torch.ones(2), torch.zeros(2)
        self.inner = torch.nn.Identity()

    def forward(self, x):
        if not hasattr(self.inner, "made"):
            self.inner.register_buffer("made", torch.ones(2), persistent=False)
        self.c0 = self.h0.to(x.device)
        self.h0 = self.h0 * 2
        return x + self.h0


def get_inputs():
    return [torch.zeros(3, 2)]
"""


def test_no_call_sees_what_another_one_assigned(tmp_path: Path) -> None:
    with ReferenceWorker(task_of(tmp_path, "assigning", ASSIGNING)) as worker:
        inputs = worker.inputs("default", 0)
        for _ in range(2):
            assert [one.shape for one in worker.constants("default").specs] == [(2,), (2,)]
            assert (worker.reference("default", inputs).y64.array(0) == 2).all()
            assert (worker.outputs("default", inputs).array(0) == 2).all()


def test_what_a_worker_gives_must_be_as_large_as_it_says(tmp_path: Path) -> None:
    for size in (0, 4095):
        small = os.memfd_create("small", os.MFD_ALLOW_SEALING)
        os.ftruncate(small, size)
        with pytest.raises(WorkerError, match="expected memory for 1 tensors"):
            _shared([["in0", [4], [1], "f32"]], small)
    with pytest.raises(WorkerError, match="expected memory for 1 tensors"):
        _shared([["in0", [4], [1], "f32"]], os.open(tmp_path, os.O_RDONLY))


def test_a_class_of_the_users_own_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mylayers.py").write_text(
        "import torch\n\nclass Twice(torch.nn.Module):\n    def forward(self, x):\n        return x + x\n"
    )
    monkeypatch.chdir(tmp_path)
    task = load_task("mylayers:Twice", inputs=["x=f32[2,3]"])
    with ReferenceWorker(task) as worker:
        assert worker.describe()["default"].outputs[0].shape == (2, 3)
        inputs = worker.inputs("default", 1)
        np.testing.assert_array_equal(worker.outputs("default", inputs).array(0), 2 * inputs.array(0))


def test_the_child_ends_when_its_client_is_killed(norm: Task) -> None:
    script = (
        "import os, sys\nfrom evoforge.evaluation.tasks import load_task\n"
        "from evoforge.evaluation.worker import ReferenceWorker\n"
        "worker = ReferenceWorker(load_task(sys.argv[1]))\nworker.describe()\n"
        "print(worker.pid, flush=True)\nos.kill(os.getpid(), 9)\n"
    )
    assert norm.path is not None
    done = subprocess.run([sys.executable, "-c", script, norm.path], capture_output=True, text=True, check=False)
    pid = int(done.stdout)
    assert ended(pid)


@pytest.mark.skipif(not can_prioritise(), reason="needs real-time priority")
def test_a_sparse_weight_is_refused_by_name(tmp_path: Path) -> None:
    text = """\
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("w", torch.eye(3).to_sparse())

    def forward(self, x):
        return torch.sparse.mm(self.w, x)


def get_inputs():
    return [torch.randn(3, 2)]
"""
    refused = pytest.raises(UnsupportedError, match="parameter w is sparse_coo, which is not covered")
    with ReferenceWorker(task_of(tmp_path, "sparse", text)) as worker, refused:
        worker.describe()


def test_what_runs_a_baseline_is_put_ahead_of_others_and_not_only_its_keeper(tmp_path: Path) -> None:
    task = task_of(tmp_path, "scale", SCALE)
    with ReferenceWorker(task) as reference, BaselineWorker(task, side="eager") as baseline:
        baseline.prepare("default", [reference.inputs("default", 0)])
        baseline.empty()
        prioritise(baseline.pid)
        baseline.run("default", 1, 0)
        below = [process.pid for process in psutil.Process(baseline.pid).children(recursive=True)]
        assert below
        assert {os.sched_getscheduler(pid) for pid in (baseline.pid, *below)} == {os.SCHED_FIFO}


def test_workers_are_forked_from_one_that_a_later_one_finds_dead(tmp_path: Path) -> None:
    task = task_of(tmp_path, "scale", SCALE)
    with ReferenceWorker(task) as first, ReferenceWorker(task) as second:
        signature = first.describe()
        assert second.describe() == signature
        servers = {_parent(first.pid), _parent(second.pid)}
        assert len(servers) == 1
        os.kill(servers.pop(), 9)
        with pytest.raises(WorkerError, match="died"):
            for _ in range(1000):  # death reaches the worker through its keeper
                second.inputs("default", 0).close()
    with ReferenceWorker(task) as third:
        assert third.describe() == signature


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_baseline_stands_still_between_its_batches_and_dies_with_its_client(tmp_path: Path) -> None:
    task = task_of(tmp_path, "scale", SCALE)
    script = """
import sys, threading
from evoforge.evaluation.tasks import load_task, parse_set
from evoforge.evaluation.worker import BaselineWorker, ReferenceWorker
def begin():
    global baseline
    task = load_task(sys.argv[1])
    with ReferenceWorker(task) as worker:
        baseline = BaselineWorker(task, side="eager", threads=2)
        baseline.prepare("default", [worker.inputs("default", 0), worker.inputs("default", 1)])
        for _ in range(3):
            assert baseline.run("default", 2, 0) > 0
            assert baseline.run("default", 2, 0, base=1, span=1) > 0
            assert baseline.empty() > 0
begun = threading.Thread(target=begin)
begun.start()
begun.join()
print(baseline.pid, flush=True)
sys.stdin.read()
"""
    assert task.path is not None
    client = subprocess.Popen([sys.executable, "-c", script, task.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert client.stdin is not None
    assert client.stdout is not None
    with client.stdin, client.stdout:
        pid = int(client.stdout.readline())
        assert Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        client.kill()
        client.wait()
    assert ended(pid)


def ended(pid: int) -> bool:
    """Whether a process that was told to end does: who waits for it is its own parent."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


WRITES = """\
import pathlib, tempfile
import torch

FOLDERS = ""


def Model(x):
    return x * 2


def get_inputs():
    pathlib.Path(tempfile.gettempdir(), "mine").write_text("x")
    for folder in FOLDERS.split(":"):
        try:
            pathlib.Path(folder, "written").write_text("x")
        except OSError:
            continue
        raise ValueError("wrote to " + folder)
    return [torch.randn(4)]
"""


def test_a_task_writes_to_its_own_folder_only(tmp_path: Path) -> None:
    """Others hold what somebody else runs, the cache too where it lies among temporary files."""
    others = [tmp_path, Path(tempfile.gettempdir()), cache_dir(), cache_dir() / "inductor"]
    (cache_dir() / "inductor").mkdir(parents=True, exist_ok=True)
    plain = task_of(tmp_path, "writes", WRITES)
    assert plain.path is not None
    with ReferenceWorker(load_task(plain.path, {"FOLDERS": ":".join(map(str, others))})) as worker:
        worker.inputs("default", 0)
    assert (scratch_dir() / "mine").exists()
    assert not any((folder / "written").exists() for folder in others)


SCALE = """\
import torch

M = 32


def Model(x):
    return torch.relu(x) * 2


def get_inputs():
    return [torch.randn(M, M)]
"""


def test_the_compiled_baseline_compiles_in_the_background(tmp_path: Path) -> None:
    task = task_of(tmp_path, "scale", SCALE)
    with ReferenceWorker(task) as worker, BaselineWorker(task, side="compiled") as compiled:
        sets = [worker.inputs("default", seed) for seed in range(2)]
        compiled.prepare("default", sets)
        assert not compiled.ready()  # neither waits for the compiler
        assert compiled.ready(120)
        assert compiled.run("default", 5, 1) > 0
    assert any((cache_dir() / "inductor").resolve().rglob("*.so"))


def test_a_failing_torch_compile_is_reported_and_eager_is_not_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVOFORGE_CACHE", str(tmp_path / "cache"))
    refusing = tmp_path / "g++"
    refusing.write_text(f"""#!/bin/sh
case "$*" in *native/*|*--version*) exec {find_compiler()} "$@";; esac
exit 1
""")
    refusing.chmod(0o755)
    monkeypatch.setenv("CXX", str(refusing))
    task = task_of(tmp_path, "scale", SCALE)
    with (
        ReferenceWorker(task) as worker,
        BaselineWorker(task, side="compiled") as compiled,
        BaselineWorker(task, side="eager") as eager,
    ):
        sets = [worker.inputs("default", 0)]
        compiled.prepare("default", sets)
        eager.prepare("default", sets)
        with pytest.raises(WorkerError, match=r"C\+\+"):
            compiled.ready(120)
        with pytest.raises(WorkerError, match=r"C\+\+"):
            compiled.run("default", 1, 0)
        assert eager.run("default", 2, 0) > 0


GREEDY = """\
import ctypes
import pathlib
import socket

import torch

LIBC = ctypes.CDLL(None, use_errno=True)
try:
    socket.create_connection(("127.0.0.1", 9), timeout=1)
except OSError as error:
    NETWORK = str(error)
try:
    socket.socket(socket.AF_UNIX)
    DOOR = "open"
except OSError as error:
    DOOR = str(error)
OUTLIVES = LIBC.prctl(1, 0, 0, 0, 0)  # PR_SET_PDEATHSIG: to be told of no parent's death
try:
    (pathlib.Path.home() / "evoforge-was-here").write_text("x")
    WRITTEN = "written"
except OSError as error:
    WRITTEN = str(error)


def Model(x):
    return x + 1


def get_inputs():
    raise ValueError(f"{NETWORK}; {DOOR}; {WRITTEN}; {OUTLIVES}")
"""


@pytest.mark.skipif(reached_layers() != set(LAYERS), reason="needs every layer of the sandbox")
def test_a_task_reaches_no_network_and_changes_no_file(tmp_path: Path) -> None:
    refused = pytest.raises(TaskError, match=r"(Permission denied; .*){2}Permission denied.*; -1")
    with ReferenceWorker(task_of(tmp_path, "greedy", GREEDY)) as worker, refused:
        worker.describe()
    assert not (Path.home() / "evoforge-was-here").exists()


def test_what_a_killed_process_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    script = (
        "import sys; from evoforge.evaluation.worker_process import scratch_dir; folder = scratch_dir();"
        "(folder / 'left').write_text('x'); print(folder, flush=True); sys.stdin.read()"
    )

    def start() -> tuple[subprocess.Popen[str], Path]:
        process = subprocess.Popen(
            [sys.executable, "-c", script], env={**os.environ, "TMPDIR": str(tmp_path)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        return process, Path(process.stdout.readline().strip())

    killed, left = start()
    at_work, used = start()
    killed.kill()
    killed.communicate(timeout=60)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = tmp_path / "evoforge-task-link"
    link.symlink_to(elsewhere)
    long_ago = time.time() - 3600
    for folder in (left, used):
        os.utime(folder, (long_ago, long_ago))
    os.utime(link, (long_ago, long_ago), follow_symlinks=False)
    last, own = start()
    assert not left.exists() and used.exists() and own.exists() and elsewhere.exists()
    for process in (at_work, last):
        process.communicate("", timeout=60)
    assert not used.exists() and not own.exists()


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("[[2], {'b': 3}]", "2 3 0"),
        ("[[2, 3], {}]", "[2, 3] {} 0"),
        ("[[], {'a': [], 'b': {}}]", "[] {} 0"),
        ("[[2], {'x': 3}]", "[2] {'x': 3} 0"),
        ("[[2, 3, 4], {}]", "[2, 3, 4] {} 0"),
        ("[2, 3, 4]", "2 3 4"),
        ("None", "1 2 0"),
    ],
)
def test_what_model_is_made_with_may_have_names(tmp_path: Path, given: str, made: str) -> None:
    text = (
        "import torch\n\nclass Model(torch.nn.Module):\n"
        "    def __init__(self, a=1, b=2, c=0):\n        super().__init__()\n"
        f"        if f'{{a}} {{b}} {{c}}' != {made!r}:\n            raise ValueError(f'got {{a}} {{b}} {{c}}')\n\n"
        "    def forward(self, x):\n        return x * 2\n\ndef get_inputs():\n    return [torch.randn(4)]\n\n"
        f"def get_init_inputs():\n    return {given}\n"
    )
    with ReferenceWorker(task_of(tmp_path, "made", text)) as worker:
        assert worker.describe()


@pytest.mark.parametrize("model", ["class Model(torch.nn.Module):\n    def forward(self, ", "def Model("])
def test_inputs_may_go_by_name(tmp_path: Path, model: str) -> None:
    inside = "        return" if "class" in model else "    return"
    text = (
        f"import torch\n\n{model}x, y, scale=2, z=None):\n{inside} (x - y) * scale if z is None else x - z\n\n"
        "N = 1\nWORKLOADS = [{'name': 'two'}, {'name': 'three', 'N': 3}]\n\ndef get_inputs():\n"
        "    named = {'y': torch.randn(3), 'x': torch.randn(2, 3), 'z': torch.randn(3)}\n"
        "    return {key: one for key, one in named.items() if N > 1 or key != 'z'}\n"
    )
    with ReferenceWorker(task_of(tmp_path, "named", text)) as worker:
        shapes = {name: [spec.shape for spec in one.inputs] for name, one in worker.describe().items()}
        assert shapes == {"two": [(2, 3), (3,)], "three": [(2, 3), (3,), (3,)]}
        inputs = worker.inputs("two", 1)
        x, y = (inputs.array(at).astype(np.float64) for at in (0, 1))
        assert worker.reference("two", inputs).y64.array(0) == pytest.approx((x - y) * 2)


def test_lazy_modules_are_refused_by_name(tmp_path: Path) -> None:
    text = (
        "import torch\n\nclass Model(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.head = torch.nn.LazyLinear(7)\n\n    def forward(self, x):\n        return self.head(x)\n\n"
        "def get_inputs():\n    return [torch.randn(4, 3)]\n\ndef get_init_inputs():\n    return []\n"
    )
    with (
        ReferenceWorker(task_of(tmp_path, "lazy", text)) as worker,
        pytest.raises(TaskError, match=r"head\.weight.*LazyL"),
    ):
        worker.describe()


GATED = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.sigmoid(x @ x.new_ones(10, 1)) * y

def get_inputs():
    return [torch.randn(128, 10), torch.randn(128, 64)]

def get_init_inputs():
    return []
"""


def test_a_gate_that_rounding_opens_may_be_open_or_shut(tmp_path: Path) -> None:
    """Of so large numbers what is left of a sum is what rounding makes of it; where much is left it decides nothing."""
    with ReferenceWorker(task_of(tmp_path, "gated", GATED), seed=1) as worker:
        inputs = worker.inputs("default", 1)
        x, y = inputs.array(0), inputs.array(1)
        rng = np.random.default_rng(0)
        x[...] = rng.uniform(25, 31, x.shape)
        x[:, 0] = 64 * rng.integers(8_500_000, 9_000_000, 128)  # of which 64 is the last place
        x[:, 8], x[:, 9] = -x[:, 0] - 64, -20
        x[1::2, 7] = 1e6
        reference = worker.reference("default", inputs)
        outputs = worker.outputs("default", inputs)
        one = np.float32(1)
        for shut, passes in ((slice(0, None, 2), True), (slice(1, None, 2), False)):
            in_turn = np.cumsum(x, 1, dtype=np.float32)[:, -1:]
            assert (in_turn[::2] == -84).all(), "the sum as a loop takes it: the others are lost"
            gate = np.where(np.arange(128)[:, None] % 2 == 0, np.float32(0), one)
            gate[shut] = 0
            outputs.array(0)[...] = gate * y
            assert check_outputs(outputs, reference, Tolerance()).passed == passes


def test_where_nearly_any_index_would_serve_none_is_right(tmp_path: Path) -> None:
    """Torch's own may be the exact one by luck, and an honest kernel's be another."""
    text = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.argmin(x + 1e6, dim=-1)

def get_inputs():
    return [torch.randn(8192, 256)]

def get_init_inputs():
    return []
"""
    with ReferenceWorker(task_of(tmp_path, "crowded", text), seed=1) as worker:
        inputs = worker.inputs("default", 1)
        assert worker.reference("default", inputs).moot == "rounding"
        inputs.array(0)[:, 0] = -1e6
        assert not worker.reference("default", inputs).moot
