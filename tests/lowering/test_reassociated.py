"""Which sums of sums are taken in another order, and that what comes of it stays what it is."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as fn

from evoforge.lowering import rewrites
from evoforge.lowering.cost import flops
from evoforge.lowering.ir import Graph, Stage
from evoforge.lowering.stages import extents_of, operations
from tests.lowering.test_cpp import Module, check_all, rand, rewritten, unfolded

CASES: dict[str, tuple[nn.Module, list[torch.Tensor]]] = {
    "linear": (Module(lambda x, w, b: fn.linear(x, w, b).sum(1), rand(40, 33), rand(40)), [rand(21, 33)]),
    "scaled_and_shifted": (
        Module(lambda x, w, b: ((b - fn.linear(x, w) / 3) * 2 - 1 - b).mean(1, True) * 5, rand(40, 33), rand(40)),
        [rand(21, 33)],
    ),
    "weighted": (
        Module(lambda x, w, b: (-fn.linear(x, w) * b / (1 + b.abs())).sum(1), rand(40, 33), rand(40)), [rand(61, 33)],
    ),
    "beside_others": (
        Module(lambda x, y, w, b: (y + fn.linear(x, w) + x @ w * b).sum(-1), rand(33, 33), rand(33)),
        [rand(21, 33), rand(1, 33)],
    ),
    "all": (Module(lambda x, y: (x @ y).sum()), [rand(21, 33), rand(33, 40)]),
    "over_rows": (Module(lambda x, y: (x @ y).mean(0)), [rand(44, 33), rand(33, 40)]),
    "trace": (Module(lambda x, y: torch.trace(x @ y)), [rand(21, 33), rand(33, 21)]),
    "twice": (Module(lambda x, v, w: (x @ v @ w).sum(1)), [rand(90, 33), rand(33, 40), rand(40, 27)]),
    "without_softmax": (
        Module(lambda q, k, v: q @ (k.transpose(1, 2) / 8) @ v), [rand(2, 70, 8), rand(2, 75, 8), rand(2, 75, 9)],
    ),
    "convolution": (nn.Sequential(nn.Conv2d(3, 20, 3), nn.AdaptiveAvgPool2d(1)), [rand(2, 3, 19, 23)]),
    "padded": (
        Module(lambda x, w, b: fn.conv2d(x, w, b, padding=(2, 1)).sum((2, 3)), rand(20, 3, 5, 3), rand(20)),
        [rand(2, 3, 19, 23)],
    ),
    "padded_with_ones": (
        Module(lambda x, w: fn.conv2d(fn.pad(x, (1, 2, 1, 0), value=1.0), w).mean((2, 3)), rand(20, 3, 3, 3)),
        [rand(2, 3, 19, 23)],
    ),
    "in_steps": (
        Module(lambda x, w: fn.conv2d(x, w, stride=(2, 3), padding=(1, 2), dilation=2).mean((2, 3)), rand(20, 3, 3, 3)),
        [rand(2, 3, 19, 23)],
    ),
    "in_groups": (
        Module(lambda x, w: fn.conv2d(x, w, padding=1, groups=2).mean((2, 3)), rand(20, 3, 3, 3)), [rand(2, 6, 19, 23)],
    ),
    "along_one_axis": (
        Module(lambda x, w: fn.conv2d(x, w, padding=1).mean(3), rand(30, 3, 3, 3)), [rand(2, 3, 19, 23)],
    ),
    "pixels_weighted": (
        Module(lambda x, w, m: (fn.conv2d(x, w, padding=1) * m).sum((2, 3)), rand(20, 3, 3, 3), rand(19, 23)),
        [rand(2, 3, 19, 23)],
    ),
    "in_fours": (
        Module(lambda x, w: fn.linear(x, w).view(-1, 5, 4, 6).sum(2).amax(2), rand(120, 64)), [rand(70, 64)],
    ),
    "depth": (
        Module(lambda x, w, b: fn.conv_transpose3d(x, w, b, 2, 1).mean(2), rand(3, 9, 3, 3, 3), rand(9)),
        [rand(2, 3, 8, 6, 7)],
    ),
    "volume": (
        Module(lambda x, w, b: fn.conv3d(x, w, b, padding=1).mean((2, 3, 4)), rand(20, 3, 3, 3, 3), rand(20)),
        [rand(2, 3, 7, 9, 11)],
    ),
    "transposed": (
        Module(lambda x, w, b: (fn.conv_transpose2d(x, w, b) * 0.5).mean((2, 3)), rand(3, 20, 3, 3), rand(20)),
        [rand(2, 3, 19, 23)],
    ),
    "transposed_in_steps": (
        nn.Sequential(
            nn.ConvTranspose2d(3, 40, (3, 4), (2, 3), 1, (1, 2)), nn.BatchNorm2d(40), nn.AdaptiveAvgPool2d(1)
        ),
        [rand(2, 3, 11, 13)],
    ),
    "transposed_dilated": (
        Module(lambda x, w: fn.conv_transpose1d(x, w, stride=2, padding=3, dilation=3).sum(2), rand(3, 40, 4)),
        [rand(2, 3, 31)],
    ),
}  # fmt: skip


def points(graph: Graph) -> int:
    return sum(math.prod(extents_of(stage).values()) for stage in graph.stages)


def work(stage: Stage) -> int:
    return math.prod(extents_of(stage).values()) * (operations(stage.body) + (stage.kind == "reduce"))


@pytest.mark.parametrize("case", CASES)
def test_sums_take_the_order_that_is_shorter(case: str) -> None:
    graph = unfolded(*CASES[case])
    made = rewrites.apply(graph, ["reassociated"])
    assert points(made) < points(graph) / 2
    assert rewrites.apply(made, ["reassociated"]) == made, "nothing is left"
    assert len({stage.name for stage in made.stages}) == len(made.stages)


@pytest.mark.parametrize("case", CASES)
def test_the_bound_is_below_what_the_other_order_takes(case: str) -> None:
    graph = unfolded(*CASES[case])
    made = rewrites.apply(graph, ["reassociated"])
    assert sum(flops(graph).values()) <= sum(work(stage) for stage in made.stages)


def test_kernels_compute_what_the_module_computes(tmp_path: Path) -> None:
    check_all([(k, *CASES[case]) for case in CASES for k in rewritten(case, *CASES[case], "reassociated")], tmp_path)


def both(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    z = x @ y
    return z, z.sum(1)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: fn.relu(x @ y).sum(1),
        lambda x, y: (x @ y).square().mean(1),
        lambda x, y: (x @ y).amax(1),
        lambda x, y: (x @ y).exp().sum(1),
        lambda x, y: (x[:2] @ y).sum(1),  # the weights are read once anyway
        both,
    ],
)
def test_other_sums_stay_as_they_are(function: object) -> None:
    graph = unfolded(Module(function), [rand(21, 33), rand(33, 40)])
    assert rewrites.apply(graph, ["reassociated"]) == graph
