"""What capture makes of a module: stages, indices, names; and what it refuses."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from evoforge.errors import EvoforgeError, TaskError, UnsupportedError
from evoforge.lowering.capture import capture_graph
from evoforge.lowering.index import plain_axis
from evoforge.lowering.ir import Cast, FloorDiv, Graph, Mod, Op, loads, nodes, rewrite
from evoforge.lowering.operators import HANDLERS


class Call(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def graph_of(function: Callable[..., Any], *inputs: Any) -> Graph:
    return capture_graph(Call(function).eval(), list(inputs))


def forms(graph: Graph) -> list[tuple[str, str | None, tuple[int, ...], tuple[int, ...]]]:
    """(kind, monoid, sizes, reduced sizes) per stage."""
    return [
        (s.kind, s.monoid, tuple(a.extent for a in s.axes), tuple(a.extent for a in s.reduction)) for s in graph.stages
    ]


def broken_indices(graph: Graph) -> list[Any]:
    """Quotients and remainders anywhere in the graph."""
    found: list[Any] = []

    def visit(node: Any) -> Any:
        if isinstance(node, FloorDiv | Mod):
            found.append(node)
        return node

    for stage in graph.stages:
        rewrite(stage.body, visit)
    return found


def test_residual_rms_norm_is_a_chain_of_plain_stages() -> None:
    def model(x: torch.Tensor, r: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = x + r
        return F.rms_norm(h, (8,), eps=1e-6), h

    graph = graph_of(model, torch.randn(4, 8), torch.randn(4, 8))
    assert forms(graph) == [
        ("map", None, (4, 8), ()),
        ("reduce", "sum", (4,), (8,)),
        ("map", None, (4,), ()),
        ("map", None, (4, 8), ()),
    ]
    assert graph.stages[0].outputs == ("out1",)  # the sum is written once and read from the output
    assert graph.stages[-1].outputs == ("out0",)
    assert all(plain_axis(index) for stage in graph.stages for load in loads(stage.body) for index in load.index)


def test_layer_norm_takes_two_passes() -> None:
    graph = capture_graph(nn.LayerNorm(8).eval(), [torch.randn(2, 3, 8)])
    assert [f[1] for f in forms(graph)] == ["sum", None, "sum", None, None]
    assert graph.names("cst") == ["cst0", "cst1"]


def test_group_norm_reduces_over_several_axes_without_quotients() -> None:
    graph = capture_graph(nn.GroupNorm(2, 6).eval(), [torch.randn(2, 6, 4, 5)])
    assert forms(graph)[0] == ("reduce", "sum", (2, 2), (3, 4, 5))
    statistics = Graph(graph.tensors, graph.stages[:-1])
    assert not broken_indices(statistics)


def test_flattening_splits_the_axes_of_what_reads_it() -> None:
    graph = graph_of(lambda x: (x.flatten(1).relu().sum(1), x), torch.randn(2, 3, 4, 5))
    assert ("reduce", "sum", (2,), (3, 4, 5)) in forms(graph)
    assert not broken_indices(graph)


def test_views_cost_no_stage() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return x.permute(2, 0, 1)[1:, None].expand(-1, 3, -1, -1).squeeze(0).transpose(0, 1).flip(0).exp()

    assert len(graph_of(model, torch.randn(3, 4, 5)).stages) == 1


def test_outputs_that_are_inputs_views_or_repeated_get_copies() -> None:
    graph = graph_of(lambda x: (x, x.t(), (y := x + 1), y), torch.randn(3, 4))
    assert [graph.tensors[name].shape for name in graph.names("out")] == [(3, 4), (4, 3), (3, 4), (3, 4)]
    sources = {stage.outputs[0]: {load.tensor for load in loads(stage.body)} for stage in graph.stages}
    assert sources == {"out0": {"in0"}, "out1": {"in0"}, "out2": {"in0"}, "out3": {"out2"}}


def test_a_reduction_writes_its_output_with_kept_dimensions_itself() -> None:
    graph = graph_of(lambda x: x.max(1, keepdim=True), torch.randn(3, 4))
    assert forms(graph) == [("reduce", "argmax", (3, 1), (4,))]
    assert graph.stages[0].outputs == ("out0", "out1")
    assert graph.tensors["out1"].dtype == "i64"


def test_a_maximum_whose_position_is_unused_is_a_plain_maximum() -> None:
    assert forms(graph_of(lambda x: x.max(1)[0], torch.randn(3, 4))) == [("reduce", "max", (3,), (4,))]


def test_identical_computations_are_shared_and_dead_ones_dropped() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        unused = x.exp().sum()
        return (x.sin() * 2 + x.sin()) + 0 * unused.shape[0:].numel()

    graph = graph_of(model, torch.randn(3, 4))
    origins = [stage.origin for stage in graph.stages]
    assert origins.count("aten.sin.default") == 1
    assert "aten.exp.default" not in origins


def test_sixteen_bit_floats_are_kept_in_f32_until_the_outputs() -> None:
    graph = graph_of(lambda x, y: ((x * y).sum(1) + 1, x.exp()), torch.randn(3, 4).half(), torch.randn(3, 4).half())
    assert {t.dtype for t in graph.tensors.values() if t.kind == "tmp"} == {"f32"}
    assert {t.dtype for t in graph.tensors.values() if t.kind != "tmp"} == {"f16"}


def test_a_sixteen_bit_type_that_no_tensor_has_is_rounded_to() -> None:
    def rounds(x: torch.Tensor) -> list[str]:
        graph = graph_of(lambda x: (x.float().half().t().float() + 1, x.bfloat16() * 2), x)
        found = [part for stage in graph.stages for part in nodes(stage.body) if isinstance(part, Op)]
        return sorted(part.name for part in found if part.name.startswith("as_"))

    assert rounds(torch.randn(3, 4)) == ["as_bf16", "as_bf16", "as_f16"]  # what is computed, too, and views never
    assert rounds(torch.randn(3, 4).half()) == ["as_bf16", "as_bf16"]


def test_single_precision_among_doubles_is_a_name_and_elsewhere_what_it_says() -> None:
    def dtypes(function: Callable[..., Any]) -> set[str]:
        graph = graph_of(function, torch.randn(3, 4).double())
        return {part.dtype for stage in graph.stages for part in nodes(stage.body) if isinstance(part, Op | Cast)}

    assert dtypes(lambda x: x.float().exp().double()) == {"f64"}
    assert dtypes(lambda x: x.float().exp()) == {"f32"}


def test_constants_are_parameters_then_buffers_with_their_strides() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("shift", torch.zeros(5), persistent=False)
            self.weight = nn.Parameter(torch.ones(4, 5).t())
            self.tied = self.weight

        def forward(self, x: torch.Tensor, scale: float) -> torch.Tensor:
            return (x @ self.weight + x @ self.tied) * scale + self.shift[:4]

    graph = capture_graph(Model().eval(), [torch.randn(3, 10)[:, ::2], 0.5])
    assert [graph.tensors[name].shape for name in graph.names("cst")] == [(5, 4), (5,)]
    assert graph.tensors["cst0"].stride == (1, 5)
    assert graph.tensors["in0"].stride == (10, 2)
    assert [s.monoid for s in graph.stages].count("sum") == 1


def test_convolution_guards_only_where_the_window_leaves_the_input() -> None:
    def guards(padding: int) -> int:
        graph = capture_graph(nn.Conv2d(2, 3, 3, padding=padding, bias=False).eval(), [torch.randn(1, 2, 6, 6)])
        return sum(len(load.guards) for stage in graph.stages for load in loads(stage.body))

    assert guards(0) == 0
    assert guards(1) == 4


def branching(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return x
    return -x


def autocast(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ x.T


REFUSED: dict[str, tuple[Callable[..., Any], type[EvoforgeError], str]] = {
    "operators": (
        lambda x: (torch.erfinv(x), x.nanmedian(1)[0]),
        UnsupportedError,
        r"aten\.erfinv.*test_capture\.py:\d+.*aten\.nanmedian",
    ),
    "long_order": (
        lambda x: x.repeat(1, 200).topk(65)[0],
        UnsupportedError,
        r"aten\.topk.*800 elements.*the first 64 of more",
    ),
    "far_order": (
        lambda x: x[:1].repeat(1, 1 << 22).topk(2)[0],
        UnsupportedError,
        r"aten\.topk.*16777216 elements along the dimension \(kernels number up to 8388608\)",
    ),
    "edges": (lambda x: torch.searchsorted(x[0], x), UnsupportedError, r"aten\.searchsorted.*edges that are an input"),
    "far_scatter": (
        lambda x: x.new_zeros(3000).scatter_add(0, torch.arange(3000) % 7, x.repeat(1, 250).view(-1)),
        UnsupportedError,
        r"aten\.scatter_add.*3000 indices and 3000 elements",
    ),
    "ragged_bags": (
        lambda x: F.embedding_bag(torch.arange(3000) % 3, x.repeat(1, 300), x[0, :2].long()),
        UnsupportedError,
        r"embedding_bag.*3000 indices and 2400 elements",
    ),
    "steps_of_a_view": (
        lambda x: x.T.as_strided((2, 3), (3, 1)),
        UnsupportedError,
        r"aten\.as_strided.*not contiguous",
    ),
    "steps_beyond_a_view": (
        lambda x: x[:2].as_strided((3, 3), (4, 1)),
        UnsupportedError,
        r"aten\.as_strided.*lies behind it",
    ),
    "checks_values": (
        lambda x: torch.linalg.cholesky(x @ x.T + 9 * torch.eye(3)),
        UnsupportedError,
        r"linalg_cholesky.* at test_capture\.py:\d+: `",
    ),
    "own_name": (lambda x: torch.erfinv(x), UnsupportedError, r"aten\.erfinv"),
    "added_where": (lambda x: x.index_put((x > 0,), x[0, 0], accumulate=True), UnsupportedError, r"aten\.index_put"),
    "complex": (lambda x: torch.fft.fft(x).abs(), UnsupportedError, r"real tensors.*fft.*test_capture\.py:\d+"),
    "pairs": (
        lambda x: torch.view_as_real(torch.view_as_complex(x.view(3, 2, 2)) * torch.polar(x[:, :2], x[:, 2:])),
        UnsupportedError,
        r"real tensors.*view_as_complex.*test_capture\.py:\d+",
    ),
    "branches": (
        lambda x: torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a - 1, (x,)),
        UnsupportedError,
        r"got cond at [^,]*; leave",
    ),
    "gradients": (
        lambda x: torch.func.vmap(torch.func.grad(lambda a: a.sin().sum()))(x),
        UnsupportedError,
        r"ends at test_capture\.py:\d+.*; leave that part out",
    ),
    "gradient": (
        lambda x: torch.func.grad(lambda a: a.sin().sum())(x),
        UnsupportedError,
        r"gradients of torch\.func at test_capture\.py:\d+: .*; write",
    ),
    "packed": (
        lambda x: nn.GRU(4, 2)(nn.utils.rnn.pack_padded_sequence(x.view(3, 1, 4), torch.tensor([3])))[1],
        TaskError,
        r"torch within an operator.*test_capture\.py:\d+: `lambda x: nn\.GRU",
    ),
    "changed_within": (
        lambda x: nn.Embedding(3, 4, _weight=x, max_norm=1.0)(torch.arange(2)),
        UnsupportedError,
        r"without side effects.*test_capture\.py:\d+: `",
    ),
    "autocast": (autocast, UnsupportedError, r"torch\.autocast.* at test_capture\.py:\d+: `with torch.*`; convert"),
    "constant": (
        lambda x: x @ torch.tensor([[float(i * j) for i in range(20)] for j in range(4)]),
        UnsupportedError,
        r"\(4, 20\) at test_capture\.py:\d+.*register_buffer",
    ),
    "combinations": (lambda x: torch.combinations(x[0]), TaskError, r"torch within an operator.*test_capture\.py:\d+"),
    "random": (lambda x: x + torch.rand_like(x), UnsupportedError, r"aten\.rand_like"),
    "in_place": (
        lambda x: x.mul_(2),
        UnsupportedError,
        r"without side effects.* at test_capture\.py:\d+: `.*; return a new",
    ),
    "branch": (branching, TaskError, r"static control flow.*test_capture\.py:\d+: `if x\.sum\(\) > 0:`"),
    "shape": (lambda x: x[x > 0], TaskError, "static control flow and shapes"),
    "number": (lambda x: x * x.sum().item(), TaskError, "static control flow"),
    "nothing": (lambda x: None, TaskError, "at least one tensor"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses_by_name(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    function, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        graph_of(function, torch.randn(3, 4))
    assert capsys.readouterr() == ("", "")


def test_what_a_handler_does_not_expect_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HANDLERS, "aten.mul.Tensor", lambda builder, *args: args[7])
    with pytest.raises(UnsupportedError, match=r"aten\.mul\.Tensor.*IndexError"):
        graph_of(lambda x: x * x, torch.randn(3, 4))


def test_refuses_training_behaviour_and_large_baked_constants() -> None:
    with pytest.raises(UnsupportedError, match=r"buffer mutation of (running_mean|num_batches_tracked)"):
        capture_graph(nn.BatchNorm1d(4).train(), [torch.randn(3, 4)])
    large = torch.randn(100)
    with pytest.raises(UnsupportedError, match="register_buffer"):
        graph_of(lambda x: x * large, torch.randn(3, 100))
    with pytest.raises(UnsupportedError, match="complex64"):
        graph_of(lambda x: x, torch.randn(3).to(torch.complex64))


def test_padding_values_are_minus_infinity_for_maxima() -> None:
    graph = graph_of(lambda x: F.max_pool2d(x, 3, 2, 1), torch.randn(1, 2, 6, 6))
    assert {load.other for stage in graph.stages for load in loads(stage.body)} == {-math.inf}


def test_a_plain_tensor_that_forward_assigns_anew_is_no_effect() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("h0", torch.randn(1, 2, 8), persistent=False)
            self.register_buffer("c0", torch.randn(1, 2, 8), persistent=False)
            self.lstm = nn.LSTM(4, 8, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.h0 = self.h0.to(x.device)
            self.c0 = self.h0.to(x.device)
            return self.lstm(x, (self.h0, self.c0))[0]

    model = Recurrent().eval()
    buffers = list(model.named_buffers())
    graph = capture_graph(model, [torch.randn(2, 5, 4)])
    assert graph.names("out") == ["out0"]
    assert [(name, id(one)) for name, one in model.named_buffers()] == [(name, id(one)) for name, one in buffers]


def test_modules_that_torchscript_traced_are_captured() -> None:
    layers = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU()).eval()
    with pytest.warns(DeprecationWarning):
        traced = nn.Sequential(torch.jit.trace(layers, torch.randn(2, 4)), nn.Tanh())
    graph = capture_graph(traced, [torch.randn(3, 4)])
    assert [len(graph.names(kind)) for kind in ("cst", "in", "out")] == [7, 1, 1]


def test_a_random_operator_is_named_for_what_it_is() -> None:
    class Random(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.dropout(x, 0.3)

    message = (
        r"the second time for output 0 because of torch.*dropout at test_capture\.py:\d+: `return F.dropout.*; take"
    )
    with pytest.raises(UnsupportedError, match=message):
        capture_graph(Random(), [torch.randn(64, 32)])


def test_what_torch_takes_apart_wrongly_is_refused() -> None:
    class Loss(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return F.multilabel_margin_loss(x, y)

    target = torch.full((4, 6), -1)
    target[:, :2] = torch.tensor([3, 0])
    with pytest.raises(
        UnsupportedError,
        match=r"output 0 at test_capture\.py:\d+: `return F\.multilabel_margin_loss.*decomposition is wrong",
    ):
        capture_graph(Loss(), [torch.randn(4, 6), target])
