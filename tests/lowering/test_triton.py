"""Printed Triton kernels, run by Triton's interpreter on the CPU, against the modules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as fn

from evoforge.errors import UnsupportedError
from evoforge.lowering import rewrites
from evoforge.lowering.capture import capture_graph
from evoforge.lowering.ir import Graph
from evoforge.lowering.planner import make_plan
from evoforge.lowering.schedule import Schedule
from evoforge.lowering.triton import print_triton
from evoforge.lowering.unify import build_domain


class Module(nn.Module):
    def __init__(self, f):  # type: ignore[no-untyped-def]
        super().__init__()
        self.f = f

    def forward(self, *inputs):  # type: ignore[no-untyped-def]
        return self.f(*inputs)


class AddNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 37))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z = x + y
        return z * torch.rsqrt(z.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight, z


def rand(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


CASES = {
    "chain": (Module(lambda x, b: torch.tanh(fn.gelu(x) * b + 1).expm1()), [rand(5, 37), rand(37)]),
    "add_norm": (AddNorm(), [rand(9, 37), rand(9, 37)]),
    "softmax": (nn.Softmax(-1), [rand(6, 1500)]),
    "softmax_column": (nn.Softmax(1), [rand(3, 5, 17)]),
    "layer_norm": (nn.LayerNorm(37), [rand(6, 37)]),
    "group_norm": (nn.Sequential(nn.GroupNorm(2, 4), nn.SiLU()), [rand(2, 4, 5, 3)]),
    "argmax": (Module(lambda x: (x.argmax(1), x.amin(0))), [rand(5, 37).round()]),
    "strided": (Module(lambda x, y: torch.exp(-x.abs()) + y.t()), [rand(10, 37)[::2], rand(37, 5)]),
    "bf16": (nn.Softmax(-1), [rand(4, 64, dtype=torch.bfloat16)]),
    "rounded": (Module(lambda x: x.half().float() * 2), [rand(5, 37)]),
    "loss": (Module(lambda x, y: fn.cross_entropy(x, y)), [rand(5, 37), torch.tensor([0, 3, 36, 7, 7])]),
    "linear": (nn.Sequential(nn.Linear(19, 11), nn.ReLU()), [rand(7, 19)]),
    "conv_pool": (nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)), [rand(2, 2, 4, 6)]),
    "causal": (Module(lambda x: x.tril().masked_fill(x.tril() == 0, float("-inf")).softmax(-1)), [rand(2, 9, 9)]),
}  # fmt: skip
GENOMES = ({}, {"split:0.1": "split"}, {"rewrite:maxsum": "on", "rewrite:welford": "on", "reduction": "chunks"})
RUN = """
import importlib.util, sys, torch
for path in sys.argv[1:]:
    spec = importlib.util.spec_from_file_location("kernels", path + ".py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    case = torch.load(path + ".pt")
    module.run(case["inputs"], case["constants"], case["outputs"])
    torch.save(case["outputs"], path + ".out")
"""


def printed(graph: Graph, genome: dict[str, str]) -> str:
    schedule = Schedule.from_genome(genome)
    domain = build_domain([rewrites.apply(graph, list(schedule.rewrites))])
    return print_triton(domain, make_plan(domain, schedule, 2))


def test_kernels_compute_what_the_module_computes(tmp_path: Path) -> None:
    paths: dict[str, tuple[str, list[torch.Tensor]]] = {}
    for name, (model, inputs) in CASES.items():
        with torch.no_grad():
            made = model.eval()(*inputs)
        wanted = list(made) if isinstance(made, tuple) else [made]
        graph = rewrites.unfold(capture_graph(model, inputs))
        for number, genome in enumerate(GENOMES):
            path = tmp_path / f"{name}_{number}"
            path.with_suffix(".py").write_text(printed(graph, genome))
            poison = [torch.full_like(t, float("nan") if t.is_floating_point() else 77) for t in wanted]
            constants = [t.detach() for t in (*model.parameters(), *model.buffers())]
            torch.save({"inputs": inputs, "constants": constants, "outputs": poison}, f"{path}.pt")
            paths[str(path)] = (name, wanted)
    done = subprocess.run(
        [sys.executable, "-c", RUN, *paths], env={**os.environ, "TRITON_INTERPRET": "1"}, text=True,
        capture_output=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    for path, (name, wanted) in paths.items():
        for got, want in zip(torch.load(f"{path}.out"), wanted, strict=True):
            tolerance = 2e-2 if want.dtype is torch.bfloat16 else 2e-5
            torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}")


def test_products_are_not_fused_with_what_takes_their_maximum_away() -> None:
    """The interpreter fuses nothing, a GPU's compiler does unless it is told."""
    text = printed(capture_graph(Module(lambda x: (x * 0.17).softmax(-1)), [rand(3, 5)]), {})
    launches = [line for line in text.splitlines() if "BLOCK=" in line]
    assert launches and all("enable_fp_fusion=False" in line for line in launches)


def test_what_has_no_triton_form_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="scan"):
        printed(capture_graph(Module(lambda x: x.cumsum(1)), [rand(3, 5)]), {})
    with pytest.raises(UnsupportedError, match="atan"):
        printed(capture_graph(Module(torch.atan), [rand(3, 5)]), {})
