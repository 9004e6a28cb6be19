"""Which factors leave a sum of products, and that what comes of it stays what it is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as fn

from evoforge.lowering import rewrites
from evoforge.lowering.ir import Graph, Op, Stage, loads, nodes
from evoforge.lowering.stages import readers
from tests.lowering.test_cpp import Module, check_all, rand, rewritten, unfolded


def weights_too(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    weights = torch.softmax(q @ k.t(), -1)
    return weights @ v, weights


CASES: dict[str, tuple[nn.Module, list[torch.Tensor]]] = {
    "attention": (
        Module(lambda q, k, v: fn.scaled_dot_product_attention(q, k, v, is_causal=True)),
        [rand(2, 3, 37, 16) for _ in range(3)],
    ),
    "weights_too": (Module(weights_too), [rand(20, 8), rand(33, 8), rand(33, 12)]),
    "rms_norm": (nn.Sequential(nn.RMSNorm(40), nn.Linear(40, 24)), [rand(19, 40)]),
    "plain_rms_norm": (
        nn.Sequential(nn.RMSNorm(40, elementwise_affine=False), nn.Linear(40, 24, bias=False)), [rand(19, 40)],
    ),
    "unit_rows": (
        Module(lambda x, y: fn.normalize(x, dim=-1) @ fn.normalize(y, dim=-1).t()), [rand(30, 17), rand(25, 17)],
    ),
    "quantised": (
        Module(lambda x, w, s: x @ (w.to(torch.float32) * s[:, None]).t()),
        [rand(20, 50), rand(37, 50).mul(40).to(torch.int8), rand(37).abs()],
    ),
    "divided_twice": (
        Module(lambda x, y, s: (x / s[:, None] * y / s[:, None]) @ y.t()),
        [rand(9, 33), rand(9, 33), 1 + rand(9).abs()],
    ),
}  # fmt: skip


def before(graph: Graph, stage: Stage) -> list[Stage]:
    """The maps that a stage reads."""
    read = {load.tensor for load in loads(stage.body)}
    return [other for other in graph.stages if other.kind == "map" and read & set(other.outputs)]


@pytest.mark.parametrize("case", CASES)
def test_what_is_the_same_all_along_a_sum_is_applied_to_the_sum(case: str) -> None:
    graph = unfolded(*CASES[case])
    made = rewrites.apply(graph, ["factored"])
    assert rewrites.apply(made, ["factored"]) == made, "nothing is left"
    *_, sums = (stage for stage in made.stages if stage.kind == "reduce" and stage.monoid == "sum")
    (scaled,) = readers(made, str(sums.outputs[0]))
    assert isinstance(scaled.body, Op) and scaled.body.name in ("mul", "div", "add")
    quotients = [node for stage in before(made, sums) for node in nodes(stage.body) if isinstance(node, Op)]
    assert not any(node.name == "div" for node in quotients)


def test_kernels_compute_what_the_module_computes(tmp_path: Path) -> None:
    check_all([(k, *CASES[case]) for case in CASES for k in rewritten(case, *CASES[case], "factored")], tmp_path)


def test_what_is_stored_takes_the_name_of_what_was() -> None:
    """So that a genome that has the weights stored still has something stored."""
    graph = unfolded(*CASES["attention"])
    (stored,) = before(graph, graph.stages[-1])
    made = rewrites.apply(graph, ["factored"])
    *_, sums, _ = made.stages
    (now,) = before(made, sums)
    assert now.name == stored.name and now.body != stored.body
    assert len({stage.name for stage in made.stages}) == len(made.stages)


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 9)), [rand(7, 20)]),  # no product before the sum
        (Module(lambda x, y: (x * x.amax(0)) @ y), [rand(7, 20), rand(20, 9)]),  # a factor of every term
        (Module(lambda x, y: (x / 3) @ y), [rand(7, 20), rand(20, 9)]),  # a number
        (Module(lambda x, y: (x + y.amax(1)[:7, None]) @ y), [rand(7, 20), rand(20, 9)]),  # no factor
        (Module(lambda x, y: (x / x.amax(1, True)) @ y).double(), [rand(7, 20).double(), rand(20, 9).double()]),
    ],
)
def test_other_sums_stay_as_they_are(model: nn.Module, inputs: list[torch.Tensor]) -> None:
    assert "factored" not in rewrites.available(unfolded(model, inputs))
