"""Operation counts and shrunken workloads."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from evoforge.core import Signature, TensorSpec
from evoforge.lowering import idle
from evoforge.lowering.capture import capture_graph
from evoforge.lowering.cost import flops, laid_out, read_elements, trace_signature
from evoforge.lowering.ir import Graph

KIB = 1024


class Call(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def graph_of(function: Callable[..., Any] | nn.Module, *inputs: Any) -> Graph:
    model = function if isinstance(function, nn.Module) else Call(function)
    return capture_graph(model.eval(), list(inputs))


def signature_of(graph: Graph) -> Signature:
    def specs(kind: str) -> tuple[TensorSpec, ...]:
        found = [graph.tensors[name] for name in graph.names(kind)]
        return tuple(TensorSpec(t.name, t.shape, t.stride, t.dtype) for t in found)

    return Signature(specs("in"), specs("cst"), specs("out"))


def test_a_product_counts_a_multiplication_and_an_addition_per_point() -> None:
    assert flops(graph_of(torch.matmul, torch.randn(8, 16), torch.randn(16, 4))) == {"f32": 2 * 8 * 16 * 4}


def test_repeated_subexpressions_count_once_and_integers_not_at_all() -> None:
    assert flops(graph_of(lambda x: x**4, torch.randn(10))) == {"f32": 20}  # x², then its square
    assert flops(graph_of(lambda a: a * 2 + 1, torch.arange(10))) == {}
    assert flops(graph_of(lambda x: x.exp(), torch.randn(10).double())) == {"f64": 10}


def test_a_convolution_costs_what_minimal_filtering_of_six_outputs_takes() -> None:
    x = torch.randn(1, 2, 8, 5)
    plain = 2 * 2 * 3 * (6 * 3) * (3 * 3)
    assert math.isclose(flops(graph_of(nn.Conv2d(2, 3, 3, bias=False), x))["f32"], plain * 8 / 18 * 5 / 9)
    assert flops(graph_of(lambda x: x.view(4, 8).sum(0), torch.randn(32))) == {"f32": 32}, "nothing slides there"
    strided = 2 * 2 * 3 * (3 * 2) * (3 * 3)
    assert math.isclose(flops(graph_of(nn.Conv2d(2, 3, 3, stride=2, bias=False), x))["f32"], strided)


def test_padding_and_the_holes_of_a_transposed_convolution_cost_nothing() -> None:
    x = torch.randn(1, 2, 8, 8)
    padded = flops(graph_of(nn.Conv2d(2, 3, 3, padding=1, bias=False), x))["f32"]
    inside = sum(min(p + 1, 7) - max(p - 1, 0) + 1 for p in range(8))  # rows of the window that exist, summed
    assert math.isclose(padded, 2 * 2 * 3 * inside**2 * ((6 + 3 - 1) / (6 * 3)) ** 2)
    strided = flops(graph_of(nn.ConvTranspose2d(2, 3, 2, stride=2, bias=False), x))["f32"]
    assert math.isclose(strided, 2 * 2 * 3 * 16 * 16)  # every output sees one input place per channel


def test_what_is_read_is_what_has_to_be_read() -> None:
    x = torch.randn(32, 64)
    assert read_elements(graph_of(lambda x: x.softmax(-1), x)) == {"in0": 32 * 64}
    assert read_elements(graph_of(lambda x: x[4:8, ::4] * 2, x)) == {"in0": 4 * 16}
    assert read_elements(graph_of(lambda x: x[:, -1].exp(), x)) == {"in0": 32}
    halves = graph_of(lambda x: torch.cat((-x[:, 32:], x[:, :32]), -1) * x, x)
    assert read_elements(halves) == {"in0": 32 * 64}
    stencil = graph_of(lambda x: x[:, 8:40] + x[:, 9:41] + x[:, 10:42], x)
    assert read_elements(stencil) == {"in0": 32 * 34}
    assert read_elements(graph_of(lambda x: x[:, :32].diagonal() * 1, x)) == {"in0": 32}
    assert read_elements(graph_of(nn.Conv2d(3, 8, 3, padding=1), torch.randn(2, 3, 9, 9))) == {
        "in0": 2 * 3 * 81, "cst0": 8 * 27, "cst1": 8,
    }  # fmt: skip
    assert read_elements(graph_of(lambda x: x.transpose(0, 1).reshape(-1, 16).sum(-1), x)) == {"in0": 32 * 64}


def test_of_a_table_one_row_and_of_what_nothing_reads_nothing() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.unused = nn.Embedding(1000, 24), nn.Linear(8, 8)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.table(ids) * 2

    assert read_elements(graph_of(Both(), torch.arange(6).view(2, 3))) == {"in0": 6, "cst0": 24}


def test_small_workloads_stay_as_they_are() -> None:
    graph = graph_of(lambda x: x.softmax(-1), torch.randn(8, 16))
    assert trace_signature(graph, signature_of(graph), 64 * KIB) == signature_of(graph)


def test_batch_shrinks_and_rows_keep_their_length() -> None:
    graph = graph_of(nn.LayerNorm(256), torch.randn(16, 64, 256))
    small = trace_signature(graph, signature_of(graph), 64 * KIB)
    assert small is not None
    (x,), (weight, _), (y,) = small.inputs, small.constants, small.outputs
    assert x.shape == y.shape
    assert weight.shape == (256,)
    assert x.shape[-1] == 256
    assert min(x.shape) >= 4
    assert 64 * KIB <= x.nbytes <= 128 * KIB
    assert x.stride == (x.shape[1] * 256, 256, 1)


def test_reduced_and_indexed_dimensions_keep_their_size_beside_a_batch() -> None:
    graph = graph_of(F.embedding, torch.randint(0, 500, (512, 8)), torch.randn(500, 32))
    small = trace_signature(graph, signature_of(graph), 32 * KIB)
    assert small is not None
    assert small.inputs[1].shape[0] == 500
    assert small.inputs[0].shape[0] < 512
    assert small.outputs[0].shape == (*small.inputs[0].shape, small.inputs[1].shape[1])

    graph = graph_of(lambda x: x.softmax(0), torch.randn(512, 256))
    small = trace_signature(graph, signature_of(graph), 32 * KIB)
    assert small is not None
    assert small.inputs[0].shape == (512, 32)


def test_a_full_reduction_may_shrink_what_it_reduces() -> None:
    graph = graph_of(lambda x, y: F.mse_loss(x, y), torch.randn(512, 256), torch.randn(512, 256))
    small = trace_signature(graph, signature_of(graph), 32 * KIB)
    assert small is not None
    assert small.inputs[0].shape == small.inputs[1].shape
    assert small.inputs[0].nbytes == 64 * KIB


def test_a_stage_with_too_many_points_shrinks_although_its_tensors_are_small() -> None:
    graph = graph_of(torch.matmul, torch.randn(1024, 1024), torch.randn(1024, 1024))
    small = trace_signature(graph, signature_of(graph), 1024 * KIB * 1024)
    assert small is not None
    (x, y), (z,) = small.inputs, small.outputs
    assert x.shape[1] == y.shape[0] == 1024
    assert z.shape[0] * z.shape[1] * 1024 <= 1 << 26


def test_the_order_of_dimensions_in_memory_survives() -> None:
    turned = torch.randn(256, 512).t()
    graph = graph_of(lambda x: x.sum(-1), turned)
    small = trace_signature(graph, signature_of(graph), 32 * KIB)
    assert small is not None
    (x,) = small.inputs
    assert x.shape[1] == 256
    assert x.stride == (1, x.shape[0])


def test_none_where_nothing_may_shrink() -> None:
    graph = graph_of(lambda x: x.flip(0), torch.randn(1 << 16))
    assert trace_signature(graph, signature_of(graph), KIB) is None


def test_an_expanded_input_lies_as_the_kernel_gets_it() -> None:
    graph = graph_of(lambda x: x * 2, torch.randn(1, 64).expand(40, 64))
    assert graph.tensors["in0"].stride == (0, 1)
    given = Signature((TensorSpec("in0", (40, 64), (64, 1), "f32"),), (), signature_of(graph).outputs)
    assert laid_out(graph, given).tensors["in0"].stride == (64, 1)


def count(function: Callable[..., Any] | nn.Module, *inputs: Any) -> float:
    return sum(flops(graph_of(function, *inputs)).values())


def test_products_that_are_zero_by_their_place_are_no_work() -> None:
    a, b, d = torch.randn(200, 200), torch.randn(200, 200), torch.randn(200)
    dense = count(lambda a, b: a @ b, a, b)
    assert count(lambda d, b: torch.diag(d) @ b, d, b) < 0.01 * dense
    for triangle in (lambda a, b: torch.triu(a @ b), lambda a, b: torch.tril(a) @ b):
        assert 0.4 * dense < count(triangle, a, b) < 0.52 * dense
    q = torch.randn(1, 2, 128, 32)
    attention = F.scaled_dot_product_attention
    causal = count(lambda q: attention(q, q, q, is_causal=True), q)
    assert 0.4 < causal / count(lambda q: attention(q, q, q), q) < 0.55
    ids, table = torch.randint(0, 64, (32,)), torch.randn(64, 16)
    assert count(lambda i, t: F.one_hot(i, 64).to(t.dtype) @ t, ids, table) <= 64 * 32 * 16
    # What only values decide is work.
    assert count(lambda a, b: a.relu() @ b, a, b) >= dense


def test_what_nobody_reads_is_no_work() -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(32, 48)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x)[:, -1]

    x = torch.randn(4, 64, 32)
    assert count(Last(), x) <= count(nn.Linear(32, 48), x[:, -1]) * 1.01
    assert read_elements(graph_of(Last(), x))["in0"] <= 4 * 32


def test_sums_of_sums_count_in_the_cheaper_order() -> None:
    a, b, v = torch.randn(64, 128), torch.randn(128, 96), torch.randn(96)
    dense = count(lambda a, b: a @ b, a, b)
    for summed in (
        lambda a, b: (a @ b).sum(), lambda a, b: (a @ b / 2).sum(1), lambda a, b: (a @ b + b[0]).mean(0),
        lambda a, b: (a @ b).pow(2).sum(),
    ):  # fmt: skip
        assert count(summed, a, b) < 0.05 * dense
    assert count(lambda a, b, v: a @ b @ v, a, b, v) <= 2 * (128 * 96 + 64 * 128)
    assert count(lambda a, b, v: (a @ b @ v).sum(), a, b, v) < 0.05 * dense
    q, k = torch.randn(2, 300, 16), torch.randn(2, 300, 8)
    assert count(lambda q, k: q @ q.mT @ k, q, k) == 2 * 2 * (300 * 16 * 8) * 2
    pooled = nn.Sequential(nn.Conv2d(8, 16, 3), nn.AdaptiveAvgPool2d(1))
    x = torch.randn(2, 8, 20, 20)
    assert count(pooled, x) < 0.1 * count(pooled[0], x)
    # What is wanted itself, or goes through more than sums, is work; so is what no other order makes cheaper.
    for kept in (
        lambda a, b: (a @ b, (a @ b).sum()), lambda a, b: (a @ b).relu().sum(), lambda a, b: (a @ b).amax(1).sum(),
        lambda a, b: torch.softmax(a @ b, -1).sum(), lambda a, b: torch.linalg.vector_norm(a @ b, ord=1),
    ):  # fmt: skip
        assert count(kept, a, b) >= dense
    low, up = torch.randn(128, 4), torch.randn(4, 128)
    assert count(lambda a, low, up: a @ low @ up, a, low, up) == 2 * 2 * 64 * 128 * 4
    separable = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 16, 1))
    assert count(separable, x) >= 2 * 2 * 16 * 8 * 18 * 18


def test_results_that_come_together_again_and_again_are_walked_once() -> None:
    def unrolled(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        x = a @ b
        for _ in range(40):
            x = (x + 1) - x * 0.5
        return x.sum()

    assert count(unrolled, torch.randn(64, 128), torch.randn(128, 96)) < 64 * 96 * 200


def test_a_padded_stencil_that_is_unrolled_is_looked_through_so_far() -> None:
    """Every step reads the one before three times: seen through, there are 3¹⁰ of the first."""

    def stencil(x: torch.Tensor) -> torch.Tensor:
        for _ in range(10):
            padded = F.pad(x, (1, 1))
            x = padded[:, 2:] * 0.25 + padded[:, 1:-1] * 0.5 + padded[:, :-2] * 0.25
        return x

    asked = []

    class Watched(idle._Walk):
        def _places(self, *arguments: Any) -> Any:
            asked.append(arguments)
            return super()._places(*arguments)

    Watched(graph_of(stencil, torch.randn(4, 64))).run()
    assert len(asked) < 20000
