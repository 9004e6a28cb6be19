"""Which transposed convolutions are computed phase by phase, in how many products, and that they stay what they are."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from evoforge.lowering import rewrites
from evoforge.lowering.capture import capture_graph
from evoforge.lowering.ir import Graph, Stage
from tests.lowering.test_cpp import Compiled, Module, at_random, build, call, check_all, rand, rewritten, space_of

CASES = {
    "even": (nn.ConvTranspose2d(8, 12, 4, stride=2, padding=1), [rand(2, 8, 9, 16)]),
    "odd": (nn.ConvTranspose2d(8, 12, 3, stride=2, padding=1, bias=False), [rand(2, 8, 9, 11)]),
    "volumes": (nn.ConvTranspose3d(4, 6, 3, stride=2, padding=1, dilation=3), [rand(2, 4, 4, 5, 9)]),
    "no_tap_in_every_second_row": (nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, dilation=2), [rand(2, 4, 7, 9)]),
    "groups": (
        nn.ConvTranspose2d(8, 12, (3, 5), stride=(2, 3), padding=(1, 2), dilation=(2, 1), groups=4),
        [rand(2, 8, 7, 9)],
    ),
    "fewer_taps_than_stride": (nn.ConvTranspose1d(8, 12, 3, stride=5, dilation=2), [rand(2, 8, 33)]),
    "stride_divides_padding": (nn.ConvTranspose1d(8, 12, 7, stride=3, padding=3), [rand(2, 8, 33)]),
    "common_divisor": (nn.ConvTranspose1d(8, 12, 7, stride=6, dilation=4, padding=1), [rand(2, 8, 33)]),
    "one_axis": (nn.ConvTranspose2d(4, 6, 3, stride=(1, 2)), [rand(2, 4, 5, 7)]),
    "then_channels": (
        nn.Sequential(nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1), nn.Softmax(1)), [rand(2, 4, 5, 8)],
    ),
    "then_pooled": (
        nn.Sequential(nn.ConvTranspose2d(4, 6, 4, stride=2, padding=1), nn.MaxPool2d(2), nn.GroupNorm(2, 6)),
        [rand(2, 4, 6, 8)],
    ),
    "then_normalised": (nn.Sequential(nn.ConvTranspose2d(4, 6, 3, stride=2), nn.InstanceNorm2d(6)), [rand(2, 4, 5, 7)]),
    "halves": (
        Module(lambda x, w: nn.functional.conv_transpose2d(x, w, stride=2)),
        [rand(2, 4, 5, 7, dtype=torch.bfloat16), rand(4, 6, 3, 3, dtype=torch.bfloat16)],
    ),
}  # fmt: skip


def products(graph: Graph) -> int:
    def points(stage: Stage) -> int:
        return math.prod(a.extent for a in (*stage.axes, *stage.reduction))

    return sum(points(stage) for stage in graph.stages if stage.kind == "reduce")


@pytest.mark.parametrize(
    ("model", "shape", "share"),
    [
        (nn.ConvTranspose2d(8, 16, 4, stride=2, padding=1), (2, 8, 8, 8), 1 / 4),
        (nn.ConvTranspose3d(4, 8, 2, stride=2), (2, 4, 4, 4, 4), 1 / 8),
        (nn.ConvTranspose2d(8, 16, 3, stride=2, padding=1, output_padding=1), (2, 8, 8, 8), (2 / 3) ** 2),
        (nn.ConvTranspose1d(8, 16, 6, stride=3, padding=3, output_padding=0), (2, 8, 10), 1 / 3),
        (nn.ConvTranspose2d(8, 16, 4, stride=(2, 1), padding=1), (2, 8, 8, 8), 1 / 2),
    ],
)
def test_products_with_nothing_are_left_out(model: nn.Module, shape: tuple[int, ...], share: float) -> None:
    graph = rewrites.unfold(capture_graph(model.eval(), [torch.randn(shape)]))
    assert products(rewrites.apply(graph, ["phases"])) == round(products(graph) * share)


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.ConvTranspose2d(8, 16, 3), (2, 8, 8, 8)),
        (nn.Conv2d(8, 16, 3, stride=2), (2, 8, 9, 9)),
        (nn.Fold((8, 8), 2, stride=2), (2, 8, 16)),
    ],
)
def test_what_has_no_phases_stays(model: nn.Module, shape: tuple[int, ...]) -> None:
    assert "phases" not in rewrites.available(rewrites.unfold(capture_graph(model.eval(), [torch.randn(shape)])))


def test_phases_compute_what_the_module_computes(tmp_path: Path) -> None:
    check_all([(k, *CASES[case]) for case in CASES for k in rewritten(case, *CASES[case], "phases")], tmp_path)


@pytest.mark.parametrize("case", ["even", "odd", "volumes", "then_channels"])
def test_their_sums_are_register_blocks_apart_from_who_reads_them(case: str) -> None:
    model, inputs = CASES[case]
    space = space_of(capture_graph(model.eval(), inputs), 8)
    assert "// Register blocks: " in space.render(space.default())


@pytest.mark.parametrize(("stride", "padding"), [(2, 1), (3, 1), (3, 3), (4, 1), (5, 2)])
def test_whoever_reads_the_sums_reads_vectors(stride: int, padding: int) -> None:
    model = nn.Sequential(nn.ConvTranspose2d(4, 6, 4, stride, padding), nn.Mish()).eval()
    space = space_of(capture_graph(model, [rand(2, 4, 9, 16)]), 8)
    assert "one_by_one" not in space.render(space.default())


def test_every_geometry_is_right(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    made: list[tuple[Compiled, nn.Module, list[torch.Tensor]]] = []
    while len(made) < 60:
        stride, dilation, size, taps = (int(rng.integers(low, high)) for low, high in ((2, 7), (1, 7), (1, 12), (1, 8)))
        padding, more = int(rng.integers(0, dilation * (taps - 1) + 2)), int(rng.integers(0, max(stride, dilation)))
        if (size - 1) * stride - 2 * padding + dilation * (taps - 1) + more + 1 < 1:
            continue
        model = nn.ConvTranspose1d(3, 4, taps, stride, padding, more, dilation=dilation).eval()
        inputs = [rand(2, 3, size)]
        graph = capture_graph(model, inputs)
        space = space_of(graph, 8)
        genome = {**(space.default() if len(made) % 2 else {}), "rewrite:phases": "on"}
        made.append((at_random(str(model), genome, space, graph, rng), model, inputs))
    check_all(made, tmp_path)


def test_a_tap_that_is_none_multiplies_nothing(tmp_path: Path) -> None:
    """Infinities stay where a tap takes them."""
    model, x = nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, bias=False).eval(), rand(1, 3, 6, 9)
    x[0, 1, 2, 3] = math.inf
    x[0, 2, 5, 8] = math.nan
    kernels = rewritten("infinite", model, [x], "phases")
    library = build(kernels, tmp_path, "native")
    with torch.no_grad():
        expected = model(x)
    for k in kernels:
        (got,) = call(library, k, model, [x])
        assert torch.equal(torch.isfinite(got), torch.isfinite(expected)), k.label
