"""Which reads beyond an edge come from a padded copy, and that they stay what they are."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as fn

from evoforge.lowering import rewrites
from evoforge.lowering.capture import capture_graph
from evoforge.lowering.ir import Graph, loads
from tests.lowering.test_cpp import Module, build, call, check_all, rand, rewritten, space_of, unfolded


def windows(x: torch.Tensor) -> torch.Tensor:
    """Products of two tensors with edges of their own."""
    early, late = fn.pad(x, (3, 0)).unfold(1, 9, 1), fn.pad(x, (0, 3)).unfold(1, 9, 1)
    return torch.einsum("bik,bjk->bij", early, late)


CASES: dict[str, tuple[nn.Module, list[torch.Tensor]]] = {
    "planes": (nn.Conv2d(5, 12, 3, padding=1), [rand(2, 5, 9, 19)]),
    "asymmetric": (nn.Conv2d(4, 6, (5, 3), padding=(2, 0), bias=False), [rand(2, 4, 7, 11)]),
    "dilated": (nn.Conv2d(4, 6, 3, padding=2, dilation=2), [rand(2, 4, 19, 25)]),
    "strided": (nn.Conv2d(4, 6, 5, padding=2, stride=(1, 2)), [rand(2, 4, 11, 22)]),
    "same": (nn.Conv2d(4, 6, 4, padding="same"), [rand(2, 4, 33, 17)]),
    "volumes": (nn.Conv3d(4, 6, 3, padding=(1, 0, 2)), [rand(1, 4, 5, 6, 9)]),
    "depthwise": (nn.Conv2d(6, 6, 3, padding=1, groups=6), [rand(2, 6, 9, 17)]),
    "wider_than_its_input": (nn.Conv1d(3, 4, 29, padding=20), [rand(2, 3, 4)]),
    "one_row": (nn.Conv2d(3, 4, (1, 7), padding=(0, 3)), [rand(2, 3, 1, 60)]),
    "transposed": (nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1), [rand(2, 4, 5, 8)]),
    "transposed_by_one": (nn.ConvTranspose2d(4, 6, 3), [rand(2, 4, 15, 8)]),
    "means": (nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False), [rand(2, 3, 9, 17)]),
    "maxima": (nn.MaxPool2d(3, stride=1, padding=1), [rand(2, 3, 9, 17) - 5]),
    "places_of_maxima": (nn.MaxPool2d(3, stride=1, padding=1, return_indices=True), [rand(2, 3, 9, 17) - 5]),
    "cropped": (Module(lambda x, w: fn.conv2d(fn.pad(x, (2, -1, -1, 2)), w)), [rand(2, 3, 9, 12), rand(4, 3, 3, 3)]),
    "other_numbers": (Module(lambda x, w: fn.conv2d(fn.pad(x, (1, 1, 1, 1), value=0.5), w)),
                      [rand(2, 3, 9, 12), rand(4, 3, 3, 3)]),
    "windows": (Module(windows), [rand(5, 40)]),
    "computed": (nn.Sequential(nn.ReLU(), nn.Conv2d(3, 4, 3, padding=1), nn.GELU()), [rand(2, 3, 8, 16)]),
    "twice": (nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 5, 3, padding=1)), [rand(2, 3, 8, 16)]),
}  # fmt: skip


def guarded(graph: Graph) -> int:
    """Loads of reductions that may lie beyond an edge."""
    return sum(bool(load.guards) for stage in graph.stages if stage.kind == "reduce" for load in loads(stage.body))


@pytest.mark.parametrize("case", [case for case in CASES if case != "transposed"])
def test_no_reduction_asks_any_more(case: str) -> None:
    graph = unfolded(*CASES[case])
    assert guarded(graph) and not guarded(rewrites.apply(graph, ["padded"]))


def test_transposed_convolutions_have_edges_once_they_are_in_phases() -> None:
    graph = unfolded(*CASES["transposed"])
    phases = rewrites.apply(graph, ["phases"])
    made = rewrites.apply(graph, ["phases", "padded"])
    assert "padded" in rewrites.available(graph)
    assert len(made.stages) == len(phases.stages) + 1
    (sums,) = (stage for stage in made.stages if stage.kind == "reduce")
    assert len({load.guards for load in loads(sums.body)}) == 1, "what is left is about taps, of both operands"


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (nn.Conv2d(4, 6, 3), [rand(2, 4, 9, 9)]),  # no edges
        (nn.MaxPool2d(3, stride=2, padding=1), [rand(2, 4, 9, 9)]),  # few reads per element
        (nn.Conv2d(4, 6, 3, padding=1).bfloat16(), [rand(2, 4, 9, 9, dtype=torch.bfloat16)]),
        (Module(lambda x: fn.pad(x, (1, 1)) * 2), [rand(4, 9)]),  # no reduction
    ],
)
def test_what_would_not_pay_stays(model: nn.Module, inputs: list[torch.Tensor]) -> None:
    assert "padded" not in rewrites.available(unfolded(model, inputs))


def test_copies_compute_what_the_module_computes(tmp_path: Path) -> None:
    check_all([(k, *CASES[case]) for case in CASES for k in rewritten(case, *CASES[case], "padded")], tmp_path)


def test_vectors_inside_of_all_edges_are_not_masked() -> None:
    graph = capture_graph(CASES["planes"][0].eval(), CASES["planes"][1])
    space = space_of(graph)
    source = space.render(space.default())
    assert "evo::load(in0" in source and source.count("evo::edge{") == 2 and "at_least_0" not in source


def test_what_lies_in_the_tensor_does_not_reach_beyond_it(tmp_path: Path) -> None:
    """Neighbours in memory are not neighbours at an edge."""
    model, x = nn.MaxPool2d(3, stride=1, padding=1).eval(), rand(1, 2, 16, 9)
    x[0, 0, 15, 8], x[0, 1, 0, 0] = math.inf, math.nan
    kernels = rewritten("infinite", model, [x], "padded")
    library = build(kernels, tmp_path, "native")
    with torch.no_grad():
        expected = model(x)
    for k in kernels:
        (got,) = call(library, k, model, [x])
        assert torch.equal(got.nan_to_num(-99), expected.nan_to_num(-99)), k.label
