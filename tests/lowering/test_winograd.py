"""Which convolutions are computed in fewer products, and by how much fewer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from torch import nn

from evoforge.lowering import rewrites
from evoforge.lowering.capture import capture_graph
from evoforge.lowering.ir import Graph, Stage
from evoforge.lowering.space import ScheduleSpace


def graph_of(model: nn.Module, *shape: int) -> Graph:
    return rewrites.unfold(capture_graph(model.eval(), [torch.randn(shape)]))


def products(graph: Graph) -> int:
    def points(stage: Stage) -> int:
        return math.prod(a.extent for a in (*stage.axes, *stage.reduction))

    return sum(points(stage) for stage in graph.stages if stage.kind == "reduce")


@pytest.mark.parametrize(("rows", "share"), [(8, 6 / 12), (28, 6 / 12), (10, 4 / 6)])
def test_half_or_two_thirds_of_the_products_are_left(rows: int, share: float) -> None:
    graph = graph_of(nn.Conv2d(32, 64, 3, padding=1), 2, 32, rows, 9)
    assert products(rewrites.apply(graph, ["winograd"])) == round(products(graph) * share)


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.Conv2d(32, 64, 3), (2, 32, 9, 18)),  # seven rows
        (nn.Conv2d(32, 64, 3, stride=2), (2, 32, 9, 9)),
        (nn.Conv2d(32, 64, 3, dilation=2), (2, 32, 12, 12)),
        (nn.Conv2d(32, 64, 5), (2, 32, 12, 12)),
        (nn.Conv2d(64, 64, 3, groups=64), (2, 64, 10, 10)),  # every product is of values used once
        (nn.Conv2d(3, 64, 3), (2, 3, 10, 10)),
        (nn.Conv2d(64, 3, 3), (2, 64, 10, 10)),
        (nn.Conv1d(32, 64, 3), (2, 32, 18)),  # the one axis is that of the vectors
        (nn.ConvTranspose2d(32, 64, 3), (2, 32, 8, 8)),
        (nn.Conv2d(32, 64, (1, 3)), (2, 32, 8, 10)),
    ],
)
def test_what_does_not_pay_or_does_not_fit_stays(model: nn.Module, shape: Sequence[int]) -> None:
    assert "winograd" not in rewrites.available(graph_of(model, *shape))


def test_a_space_offers_it_whatever_the_other_workloads_are() -> None:
    def genes(*heights: int) -> set[str]:
        model = nn.Conv2d(32, 32, 3)
        graphs = [graph_of(model, 2, 32, height + 2, 18) for height in heights]
        space = ScheduleSpace(graphs, l1_bytes=32 << 10, l2_bytes=1 << 20, vector_bytes=32, threads=2)
        return set(space.genes())

    assert "rewrite:winograd" in genes(8) and "rewrite:winograd" in genes(8, 8)
    assert "rewrite:winograd" in genes(8, 12) and "rewrite:winograd" in genes(8, 10)
