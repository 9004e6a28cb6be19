"""What the tolerance grants an operator beyond its inputs' rounding, and a precision policy to products."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from evoforge.core import Tolerance
from evoforge.evaluation.check import check_outputs
from evoforge.evaluation.shared import SharedTensors
from evoforge.evaluation.tasks import load_task
from evoforge.evaluation.worker import Reference, ReferenceWorker

TASK = """\
import torch
import torch.nn.functional as F
TOLERANCE = {"precision": "%s"}
MODE = "matmul"
WORKLOADS = [
    {"name": "matmul"}, {"name": "gelu", "MODE": "gelu"}, {"name": "double", "MODE": "double"},
    {"name": "half", "MODE": "half"},
]


def Model(a, b):
    if MODE == "half":
        return F.log_softmax(b * 10, -1).half()
    return a @ b if MODE == "matmul" else F.gelu(a * 3)


def get_inputs():
    dtype = torch.float64 if MODE == "double" else torch.float32
    return [torch.randn(128, 512, dtype=dtype), torch.randn(512, 128, dtype=dtype)]
"""
Floats = npt.NDArray[np.float32]


@pytest.fixture(scope="module", params=["ieee", "split", "tf32"])
def worker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceWorker]:
    path = tmp_path_factory.mktemp("tasks") / f"{request.param}.py"
    path.write_text(TASK % request.param)
    with ReferenceWorker(load_task(str(path))) as worker:
        yield worker


def precision_of(worker: ReferenceWorker) -> str:
    return worker._process.task.tolerance.precision


def kept_bits(x: Floats, bits: int) -> Floats:
    """Rounded to `bits` stored bits of the mantissa."""
    drop = 23 - bits
    return ((x.view(np.uint32) + np.uint32(1 << (drop - 1))) & ~np.uint32((1 << drop) - 1)).view(np.float32)


def split(a: Floats, b: Floats) -> Floats:
    high_a, high_b = kept_bits(a, 7), kept_bits(b, 7)
    low_a, low_b = kept_bits(a - high_a, 7), kept_bits(b - high_b, 7)
    return high_a @ high_b + (high_a @ low_b + low_a @ high_b)


def accepted(worker: ReferenceWorker, workload: str, compute: Callable[..., Any]) -> bool:
    inputs = worker.inputs(workload, 3)
    reference: Reference = worker.reference(workload, inputs)
    outputs = SharedTensors(worker.describe()[workload].outputs)
    outputs.array(0)[...] = compute(*inputs.arrays())
    return check_outputs(outputs, reference, Tolerance()).passed


def test_a_product_may_be_as_inexact_as_the_policy_says(worker: ReferenceWorker) -> None:
    assert accepted(worker, "matmul", lambda a, b: a @ b)
    assert accepted(worker, "matmul", split)
    rounded = accepted(worker, "matmul", lambda a, b: kept_bits(a, 10) @ kept_bits(b, 10))
    assert rounded == (precision_of(worker) == "tf32")
    assert not accepted(worker, "matmul", lambda a, b: kept_bits(a, 7) @ kept_bits(b, 7))
    assert not accepted(worker, "matmul", lambda a, b: (a @ b) * np.float32(1.01))


def test_an_operator_that_is_no_product_is_granted_what_it_errs_itself(worker: ReferenceWorker) -> None:
    inputs = worker.inputs("gelu", 3)
    reference = worker.reference("gelu", inputs)
    outputs = worker.outputs("gelu", inputs)
    # Far below zero torch's GELU loses everything to cancellation.
    y, y64 = outputs.array(0), reference.y64.array(0)
    assert (np.abs(y - y64) > 1e-3 * np.abs(y64)).mean() > 1e-3
    assert check_outputs(outputs, reference, Tolerance()).passed
    tanh = 0.5 * (x := 3 * inputs.array(0).astype(np.float64)) * (1 + np.tanh(0.79788456 * (x + 0.044715 * x**3)))
    y[...] = tanh
    assert not check_outputs(outputs, reference, Tolerance()).passed


def test_what_is_lost_before_an_output_is_made_short_is_granted(worker: ReferenceWorker) -> None:
    """Near 0 an ulp of float16 is less than single precision loses in a confident row's logarithm."""

    def result(b: Floats, dtype: type = np.float32) -> Any:
        shifted = (b.astype(dtype) * 10) - (b.astype(dtype) * 10).max(-1, keepdims=True)
        return shifted - np.log(np.cumsum(np.exp(shifted), -1, dtype=dtype)[:, -1:])

    assert accepted(worker, "half", lambda a, b: result(b).astype(np.float16))
    off = accepted(worker, "half", lambda a, b: (result(b, np.float64) - 2e-6).astype(np.float16))
    assert not off


def test_inputs_in_double_precision_are_left_alone(worker: ReferenceWorker) -> None:
    inputs = worker.inputs("double", 3)
    before = inputs.array(0).copy()
    worker.reference("double", inputs)
    assert np.array_equal(inputs.array(0), before)


CODES = """\
import torch


def Model(x):
    step = x.abs().amax(-1, keepdim=True) / 127
    codes = torch.round(x / step)
    return codes.to(torch.int8), codes * step, x > 0.5, torch.searchsorted(x[0].cumsum(0), x[1:2, :9])


def get_inputs():
    return [torch.randn(512, 4096)]
"""


def codes_of(x: Floats, dtype: type) -> list[Any]:
    step = (np.abs(x).max(-1, keepdims=True) / np.float32(127)).astype(dtype)
    codes = np.rint(x * (1 / step).astype(dtype))
    return [codes.astype(np.int8), (codes * step).astype(np.float32), x > np.float32(0.5)]


def test_a_code_on_the_edge_between_two_is_either_and_what_is_given_is_exact(tmp_path: Path) -> None:
    (tmp_path / "codes.py").write_text(CODES)
    with ReferenceWorker(load_task(str(tmp_path / "codes.py"))) as worker:
        inputs = worker.inputs("default", 3)
        inputs.array(0)[0] = np.abs(inputs.array(0)[0])  # sums of these are in order
        inputs.array(0)[3, 5] = 0.5
        reference, outputs = worker.reference("default", inputs), worker.outputs("default", inputs)
        x = inputs.array(0)
        assert check_outputs(outputs, reference, Tolerance()).passed and not reference.moot
        single, double = codes_of(x, np.float32), codes_of(x, np.float64)
        assert (single[0] != double[0]).any(), "no code is on the edge"
        held = [outputs.array(at).copy() for at in range(3)]
        for at, right in enumerate(single):
            outputs.array(at)[...] = right
        assert check_outputs(outputs, reference, Tolerance()).passed
        for at, place, wrong in ((2, (3, 5), True), (0, (3, 5), held[0][3, 5] + 1)):
            array = outputs.array(at)
            array[place], before = wrong, array[place]
            assert not check_outputs(outputs, reference, Tolerance()).passed
            array[place] = before
        outputs.array(0)[...] = np.trunc(x / (np.abs(x).max(-1, keepdims=True) / 127)).astype(np.int8)
        assert not check_outputs(outputs, reference, Tolerance()).passed


def test_bounds_out_of_order_mean_nothing(tmp_path: Path) -> None:
    (tmp_path / "codes.py").write_text(CODES)
    with ReferenceWorker(load_task(str(tmp_path / "codes.py"))) as worker:
        assert worker.reference("default", worker.inputs("default", 3)).moot == "order"


def test_a_jump_that_the_inputs_rounding_makes_is_allowed_twice(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(
        "import torch\n\n\ndef Model(x):\n    return torch.round(x * 3)\n\n\n"
        "def get_inputs():\n    return [torch.rand(64, 64)]\n"
    )
    with ReferenceWorker(load_task(str(tmp_path / "steps.py"))) as worker:
        inputs = worker.inputs("default", 3)
        for place, error in ((0.4, 0.0), (0.5, 2 / 16)):  # 1.5 is 2, or 1 a hair below; 16 times the error is allowed
            inputs.array(0)[...] = 0.4
            inputs.array(0)[7, 9] = place
            assert worker.reference("default", inputs).ref_error == (error,)


DOUBLES = """\
import torch

torch.manual_seed(0)
WEIGHTS = torch.randn(64, 64, dtype=torch.float64)


def Model(x):
    return torch.nn.functional.layer_norm(x, (64,)), torch.sin((x @ WEIGHTS).sum(-1))


def get_inputs():
    return [torch.randn(512, 64, dtype=torch.float64)]
"""


@pytest.mark.parametrize("family", ["given", "offset", "sunk", "ends", "raised"])
def test_doubles_are_granted_what_double_precision_errs(tmp_path: Path, family: str) -> None:
    (tmp_path / "doubles.py").write_text(DOUBLES)
    with ReferenceWorker(load_task(str(tmp_path / "doubles.py"))) as worker:
        weights = worker.constants("default").array(0)
        for seed in range(3):
            inputs = worker.inputs("default", seed, family)
            reference = worker.reference("default", inputs)
            outputs = SharedTensors(reference.y64.specs)
            for kept, passes in ((np.float64, True), (np.float32, False)):
                x = inputs.array(0)
                mean = sum(x.T) / 64
                centred = x - mean[:, None]
                variance = sum((centred**2).T) / 64
                outputs.array(0)[...] = centred.astype(kept) / np.sqrt(variance + 1e-5)[:, None]
                outputs.array(1)[...] = np.sin(sum(x[:, k] * sum(weights[k]).astype(kept) for k in range(64)))
                found = check_outputs(outputs, reference, Tolerance())
                assert found.passed == passes or (passes and reference.moot), (seed, found.reason)


DIVERGENCE = """\
import torch


def Model(student, teacher):
    ours, theirs = torch.log_softmax(student, -1), torch.log_softmax(teacher, -1)
    return (theirs.exp() * (theirs - ours)).sum(-1)


def get_inputs():
    return [torch.randn(256, 2048) * 0.02, torch.randn(256, 2048) * 0.02]
"""


def divergence(student: Floats, teacher: Floats, classes: int) -> Floats:
    """In single precision, whose sums and logarithms are other ones than torch's."""

    def logs(x: Floats) -> Floats:
        e = np.exp(x - x.max(-1, keepdims=True)).reshape(len(x), 16, -1)
        total = np.zeros((len(x), 1), np.float32)
        for part in range(16):
            total += e[:, part].sum(-1, keepdims=True)
        return x - (x.max(-1, keepdims=True) + np.log(total))

    theirs = logs(teacher)
    return np.asarray((np.exp(theirs) * (theirs - logs(student)))[:, :classes].sum(-1), np.float32)


def test_what_is_left_of_like_numbers_may_err_where_torch_is_lucky(tmp_path: Path) -> None:
    (tmp_path / "divergence.py").write_text(DIVERGENCE)
    with ReferenceWorker(load_task(str(tmp_path / "divergence.py"))) as worker:
        outputs = SharedTensors(worker.describe()["default"].outputs)
        for seed in range(3):
            inputs = worker.inputs("default", seed)
            reference = worker.reference("default", inputs)
            for classes, passes in ((2048, True), (1024, False)):
                outputs.array(0)[...] = divergence(inputs.array(0), inputs.array(1), classes)
                found = check_outputs(outputs, reference, Tolerance())
                assert found.passed == passes, (seed, classes, found.reason)
            outputs.array(0)[...] = 0
            assert not check_outputs(outputs, reference, Tolerance()).passed


def test_what_an_integer_cannot_hold_is_nobodys_answer(tmp_path: Path) -> None:
    (tmp_path / "bytes.py").write_text(
        "import torch\n\n\ndef Model(x):\n    return (x * 10).round().to(torch.int8)\n\n\n"
        "def get_inputs():\n    return [torch.rand(64, 64) * 12]\n"
    )
    with ReferenceWorker(load_task(str(tmp_path / "bytes.py"))) as worker:
        moot = {family: worker.reference("default", worker.inputs("default", 3, family)).moot
                for family in ("given", "sunk", "small", "large")}  # fmt: skip
        assert moot == {"given": "", "sunk": "range", "small": "", "large": "range"}


@pytest.mark.parametrize(
    ("product", "dtype", "moot"),
    [("x.cumprod(1)", "float32", "range"), ("x.prod(1)", "float32", "range"), ("x[1].prod()", "float32", ""),
     ("x[:, :3].cumprod(1)", "float32", ""), ("x.cumprod(dim=0)", "float32", ""), ("x.cumprod(1)", "float64", "")],
)  # fmt: skip
def test_a_product_that_leaves_single_precision_and_comes_back_is_nobodys_answer(
    product: str, dtype: str, moot: str, tmp_path: Path
) -> None:
    (tmp_path / "product.py").write_text(
        f"import torch\n\n\ndef Model(x):\n    return {product}\n\n\ndef get_inputs():\n"
        f"    return [torch.tensor([[1e30, 2.0, 1e20, 1e-30], [1.0, 2.0, 1e-25, 1e-25]], dtype=torch.{dtype})\n"
        f"            * (1 + torch.rand(2, 4, dtype=torch.{dtype}))]\n"
    )
    with ReferenceWorker(load_task(str(tmp_path / "product.py"))) as worker:
        assert worker.reference("default", worker.inputs("default", 0)).moot == moot
