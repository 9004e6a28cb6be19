"""Compiles printed kernels with the system compiler and calls them through the C ABI."""

from __future__ import annotations

import ctypes
import itertools
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from evoforge.core import DTYPES
from evoforge.lowering.capture import capture_graph
from evoforge.lowering.ir import Graph
from evoforge.paths import include_dir
from tests.lowering.naive import print_naive

TORCH = {
    "f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16, "i8": torch.int8,
    "u8": torch.uint8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "bool": torch.bool,
}  # fmt: skip


class CTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_int64 * 8),
        ("stride", ctypes.c_int64 * 8),
        ("rank", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
    ]


class CCall(ctypes.Structure):
    _fields_ = [
        ("abi", ctypes.c_int32),
        ("n_in", ctypes.c_int32),
        ("n_const", ctypes.c_int32),
        ("n_out", ctypes.c_int32),
        ("threads", ctypes.c_int32),
        ("inputs", ctypes.POINTER(CTensor)),
        ("cst", ctypes.POINTER(CTensor)),
        ("out", ctypes.POINTER(CTensor)),
        ("packed", ctypes.c_void_p),
        ("ws", ctypes.c_void_p),
        ("ws_bytes", ctypes.c_int64),
    ]


def _described(tensors: Sequence[torch.Tensor]) -> Any:
    array = (CTensor * max(len(tensors), 1))()
    codes = {TORCH[name]: code for code, name in enumerate(DTYPES)}
    for slot, t in zip(array, tensors, strict=False):
        slot.data, slot.rank, slot.dtype = t.data_ptr(), t.dim(), codes[t.dtype]
        for dim in range(t.dim()):
            slot.size[dim], slot.stride[dim] = t.shape[dim], t.stride(dim)
    return array


def _call(library: Any, prefix: str, graph: Graph, model: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> Any:
    constants = [*dict(model.named_parameters()).values(), *dict(model.named_buffers()).values()]
    outputs = []
    for name in graph.names("out"):
        t = graph.tensors[name]
        poison = (
            torch.full(t.shape, float("nan")) if t.dtype in ("f32", "f64", "f16", "bf16") else torch.full(t.shape, 77)
        )
        outputs.append(poison.to(TORCH[t.dtype]))
    arrays = [_described(group) for group in (inputs, constants, outputs)]
    call = CCall(1, len(inputs), len(constants), len(outputs), 1, *arrays, None, None, 0)
    workspace = getattr(library, f"{prefix}_workspace")
    workspace.restype = ctypes.c_int64
    size = workspace(ctypes.byref(call))
    scratch = torch.full((size + 64,), 255, dtype=torch.uint8)
    call.ws = (scratch.data_ptr() + 63) // 64 * 64
    call.ws_bytes = size
    return getattr(library, f"{prefix}_run")(ctypes.byref(call)), outputs


def compile_all(sources: Mapping[str, str], folder: Path) -> Any:
    """One shared library; the entry points of source `name` become name_run and name_workspace."""
    text = []
    for name, source in sources.items():
        source = re.sub(r"\bevo_(run|workspace)\(", rf"{name}_\1(", source)
        _, end, own = source.partition("}  // namespace naive")  # the helpers only once per library
        text.append(own if text and end else source)
    path, library = folder / "kernels.cpp", folder / "kernels.so"
    path.write_text("\n".join(text))
    flags = ["-std=gnu++17", "-O1", "-march=native", "-fPIC", "-shared", "-Wall", "-Werror", "-Wno-unknown-pragmas"]
    command = ["g++", *flags, f"-I{include_dir()}", str(path), "-o", str(library)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr[:4000]
    return ctypes.CDLL(str(library))


def leaves(inputs: Any) -> list[torch.Tensor]:
    from torch.utils import _pytree as pytree

    return [leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, torch.Tensor)]


class Together(torch.nn.Module):
    """Several cases in one module: exporting costs half a second however small the module."""

    def __init__(self, cases: Sequence[tuple[str, tuple[torch.nn.Module, list[Any]]]]) -> None:
        super().__init__()
        self.names = [name for name, _ in cases]
        self.parts = torch.nn.ModuleList(model for _, (model, _) in cases)
        self.inputs = [inputs for _, (_, inputs) in cases]

    def forward(self, *groups: list[Any]) -> list[Any]:
        return [part(*group) for part, group in zip(self.parts, groups, strict=True)]


def batched(items: Iterable[Any], count: int) -> list[list[Any]]:
    waiting = iter(items)
    return list(iter(lambda: list(itertools.islice(waiting, count)), []))


Cases = Mapping[str, tuple[torch.nn.Module, list[Any]]]


@pytest.fixture
def check_naive(tmp_path: Path) -> Callable[[Cases], None]:
    """Captures, prints, compiles and runs every case, and compares with the module in float64.

    A float may be off by 64 roundings of its own size plus of the largest output; integers and
    booleans must be equal. NaN and infinities must lie where torch has them.
    """

    def check(cases: Cases) -> None:
        models = {f"k{at}": Together(part) for at, part in enumerate(batched(cases.items(), 8))}
        graphs = {name: capture_graph(model.eval(), model.inputs) for name, model in models.items()}
        library = compile_all({name: print_naive(graph) for name, graph in graphs.items()}, tmp_path)
        for name, model in models.items():
            status, outputs = _call(library, name, graphs[name], model, leaves(model.inputs))
            assert status == 0, f"{model.names}: evo_run returned {status}"
            waiting = iter(outputs)
            for case in model.names:
                for want in reference(*cases[case]):
                    compare(case, next(waiting), want, 64)
            assert not list(waiting), model.names

    return check


@pytest.fixture
def naive_status(tmp_path: Path) -> Callable[..., tuple[int, list[torch.Tensor]]]:
    """(what evo_run returns, outputs) of a kernel for `inputs` that is called with `others`."""

    def run(model: torch.nn.Module, inputs: list[Any], others: list[Any]) -> tuple[int, list[torch.Tensor]]:
        graph = capture_graph(model.eval(), inputs)
        status, outputs = _call(compile_all({"k": print_naive(graph)}, tmp_path), "k", graph, model, others)
        return status, outputs

    return run


def reference(model: torch.nn.Module, inputs: list[Any]) -> list[torch.Tensor]:
    import copy

    from torch.utils import _pytree as pytree

    def wide(x: Any) -> Any:
        return x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x

    with torch.no_grad():
        return leaves(copy.deepcopy(model).double()(*pytree.tree_map(wide, inputs)))


def compare(name: str, got: torch.Tensor, want: torch.Tensor, factor: float) -> None:
    assert got.shape == want.shape, f"{name}: shape {got.shape} for {want.shape}"
    if not want.is_floating_point():
        assert torch.equal(got.to(want.dtype), want), f"{name}: {got} for {want}"
        return
    assert got.is_floating_point(), name
    unit = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float64: 2.0**-40}.get(got.dtype, 2.0**-24)
    wide = got.double()
    odd = ~torch.isfinite(want)
    assert torch.equal(wide[odd].nan_to_num(7e77), want[odd].nan_to_num(7e77)), f"{name}: non-finite values differ"
    assert torch.isfinite(wide[~odd]).all(), f"{name}: NaN or Inf where torch has a number"
    if (~odd).any():
        size = want[~odd].abs()
        room = factor * unit * (size + size.max())
        error = (wide[~odd] - want[~odd]).abs()
        assert (error <= room).all(), f"{name}: off by {error.max():.3g}, allowed {room.max():.3g}"
