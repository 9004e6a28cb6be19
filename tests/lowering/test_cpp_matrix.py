"""Contractions in tiles of the matrix unit: right on it where the processor has one, and without it everywhere."""

from __future__ import annotations

import ctypes
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as fn

from evoforge.core import ParameterSpace
from evoforge.lowering.capture import capture_graph
from evoforge.lowering.ir import Graph
from evoforge.lowering.space import ScheduleSpace
from evoforge.paths import include_dir
from tests.lowering.test_cpp import FLAGS, Compiled, Module, build, call, check, rand

ASK_FOR_TILES = (158, 0x1023, 18)  # as the runner does before it loads a kernel

CASES: dict[str, tuple[nn.Module, list[torch.Tensor]]] = {
    "matmul": (Module(lambda a, b: a @ b), [rand(70, 77), rand(77, 53)]),
    "one_step": (Module(lambda a, b: a @ b), [rand(40, 1), rand(1, 40)]),
    "one_row_short": (Module(lambda a, b: a @ b), [rand(15, 9), rand(9, 15)]),
    "transposed": (Module(lambda a, b: torch.sigmoid(a.t() @ b.t())), [rand(33, 50), rand(70, 33)]),
    "linear": (nn.Sequential(nn.Linear(61, 37), nn.GELU()), [rand(19, 61)]),
    "gated": (Module(lambda x, u, v: fn.silu(x @ u) * (x @ v)), [rand(35, 40), rand(40, 50), rand(40, 50)]),
    "batched": (Module(lambda a, b: a @ b), [rand(3, 20, 33), rand(3, 33, 18)]),
    "bf16": (
        Module(lambda a, b: a @ b.t()),
        [rand(40, 70, dtype=torch.bfloat16), rand(33, 70, dtype=torch.bfloat16)],
    ),
    "f16": (
        Module(lambda a, b: (a @ b).relu()),
        [rand(40, 70, dtype=torch.float16), rand(70, 33, dtype=torch.float16)],
    ),
    "int8": (Module(lambda x, w: x @ w.to(x.dtype).t()), [rand(20, 50), rand(37, 50).mul(40).to(torch.int8)]),
    "conv": (nn.Sequential(nn.Conv2d(5, 20, 3, padding=1), nn.ReLU()), [rand(2, 5, 7, 18)]),
    "conv_transposed": (nn.ConvTranspose2d(4, 18, 3, stride=2, padding=1), [rand(2, 4, 5, 9)]),
    "conv_transposed_densely": (nn.ConvTranspose2d(3, 16, 3), [rand(2, 3, 7, 9)]),
    "long_sum": (Module(lambda a, b: a @ b), [rand(17, 3000), rand(3000, 20)]),
    "beside_a_few_rows": (Module(lambda x, y, w: (x @ w, y @ w)), [rand(40, 33), rand(10, 33), rand(33, 20)]),
    "behind_a_few_rows": (Module(lambda x, y, w: (x @ w, y @ w)), [rand(10, 33), rand(40, 33), rand(33, 20)]),
}


def space_of(graph: Graph, parts: int = 3) -> ScheduleSpace:
    return ScheduleSpace(
        [graph], l1_bytes=48 << 10, l2_bytes=1 << 20, vector_bytes=64, threads=2, matrix_parts=parts
    )  # fmt: skip


def on_tiles(space: ScheduleSpace, rewrites: str = "off") -> dict[str, str]:
    genes = space.genes()
    found = {gene: "matrix" for gene in genes if gene.startswith("contract")}
    return found | {gene: rewrites for gene in genes if gene.startswith("rewrite")}


@cache
def kernels_of(case: str, parts: int) -> list[Compiled]:
    """At the smallest, the default and the largest parameters."""
    model, inputs = CASES[case]
    graph = capture_graph(model.eval(), inputs)
    space = space_of(graph, parts)
    source = space.render(on_tiles(space))
    declared = ParameterSpace.parse(source)
    points = list(declared.points())
    drawn = {str(p): p for p in (points[0], declared.defaults(), points[-1])}
    return [Compiled(case, f"{parts} parts", source, params, graph) for params in drawn.values()]


@pytest.mark.parametrize("march", ["native", "x86-64-v4 -DEVO_TRACED", "x86-64-v3", "x86-64"])
def test_tiles_compute_what_the_module_computes(march: str, tmp_path: Path) -> None:
    """As exactly as floats do, where each becomes three brain floats. A traced kernel never uses the unit."""
    wide = "avx512f" in Path("/proc/cpuinfo").read_text()
    if march.startswith("x86-64-v4") and not wide:
        pytest.skip("needs AVX-512")
    if march == "x86-64-v3" and not wide:
        pytest.skip("native is that here")
    ctypes.CDLL(None).syscall(*ASK_FOR_TILES)
    kernels = [k for case in CASES for k in kernels_of(case, 3)]
    assert sum("evo::multiply(" in k.source for k in kernels) >= 26
    library = build(kernels, tmp_path, march)
    for k in kernels:
        check(k, *CASES[k.case], call(library, k, *CASES[k.case]))


@pytest.mark.parametrize("optimise", ["-O1", "-O2", "-O3"])
def test_shapes_of_tiles_are_whole_whatever_the_stack_held(optimise: str, tmp_path: Path) -> None:
    (tmp_path / "unit.cpp").write_text("""
        #include "evoforge.h"
        extern "C" long syscall(long, ...);
        __attribute__((noinline)) void soil() {
            volatile char before[4096];
            for (volatile char& one : before) one = -1;
        }
        __attribute__((noinline)) void multiply() { evo::matrix_unit unit; }
        int main() {
            syscall(158, 0x1023, 18);
            soil();
            multiply();
        }
    """)
    command = ["g++", *FLAGS, "-march=native", optimise, f"-I{include_dir()}", "unit.cpp", "-o", "unit"]
    subprocess.run(command, cwd=tmp_path, check=True)
    subprocess.run([tmp_path / "unit"], check=True)


def test_two_parts_err_by_less_than_tf32(tmp_path: Path) -> None:
    ctypes.CDLL(None).syscall(*ASK_FOR_TILES)
    kernels = [k for case in ("matmul", "linear", "long_sum") for k in kernels_of(case, 2)]
    library = build(kernels, tmp_path, "native")
    for k in kernels:
        model, inputs = CASES[k.case]
        (got,), want = call(library, k, model, inputs), model(*inputs).detach()
        error = float((got - want).abs().max() / want.abs().max())
        assert 1e-7 < error < 2e-5, "two brain floats keep 16 bits"


@pytest.mark.parametrize(
    ("case", "parts", "products"),
    [("matmul", 3, "3, 3"), ("matmul", 2, "2, 2"), ("bf16", 3, "1, 1"), ("f16", 3, "2, 2"), ("int8", 3, "3, 1")],
)
def test_short_numbers_need_fewer_parts(case: str, parts: int, products: str) -> None:
    assert f"evo::products<TILE_ROWS, 2, {products}>" in kernels_of(case, parts)[0].source


def test_infinities_and_nan_reach_the_sums(tmp_path: Path) -> None:
    ctypes.CDLL(None).syscall(*ASK_FOR_TILES)
    (k, *_) = kernels_of("matmul", 3)
    model, (a, b) = CASES["matmul"]
    a = a.clone()
    a[3, 5], a[4, 6], a[5, 7] = float("inf"), float("nan"), 3.4e38
    (got,) = call(build([k], tmp_path, "native"), k, model, [a, b])
    want = model(a, b)
    assert not got[3:5].isfinite().any(), "an infinite operand never gives a number"
    rest = [row for row in range(len(a)) if row not in (3, 4)]
    torch.testing.assert_close(got[rest], want[rest], rtol=1e-5, atol=1e-4)


def test_only_a_target_with_a_matrix_unit_is_offered_tiles() -> None:
    model, inputs = CASES["matmul"]
    graph = capture_graph(model, inputs)
    with_unit, without = space_of(graph), space_of(graph, 0)
    (gene,) = [gene for gene in with_unit.genes() if gene.startswith("contract")]
    assert "matrix" in with_unit.genes()[gene] and "matrix" not in without.genes()[gene]
    assert without.render({gene: "matrix"}) == without.render({}), "from another target's store: the plain one"
    first: Any = [with_unit.render(genome) for genome in with_unit.textbook()]
    assert "evo::multiply(" not in first[0], "the first kernel works anywhere"
    assert "evo::multiply(" in first[1]


def test_rows_that_are_too_few_for_a_tile_go_in_register_blocks() -> None:
    assert "_acc[TILE_ROWS]" in kernels_of("one_row_short", 3)[0].source
