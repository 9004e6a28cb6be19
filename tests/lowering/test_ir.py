"""Records of the representation: JSON there and back, invariants, walking."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch import nn

from evoforge.lowering.capture import capture
from evoforge.lowering.index import axis, const
from evoforge.lowering.ir import (
    MONOIDS,
    Axis,
    Cast,
    Const,
    Expr,
    Graph,
    Guard,
    Indirect,
    Load,
    Op,
    Stage,
    Tensor,
    Where,
    from_json,
    loads,
    nodes,
    rewrite,
    to_json,
)

X = Load("in0", (axis("i0"),), (Guard(axis("i0")),), -math.inf)


def test_json_round_trip_through_text_keeps_every_kind_of_node() -> None:
    read = Load("in0", (axis("i0").__class__(((1, Indirect(X)),)),))
    body = Where(Op("isnan", (X,), "bool"), Cast(read, "f32"), Const(math.inf, "f32"), "f32")
    tensors = {name: Tensor(name, (4,), (1,), "f32", kind) for name, kind in (("in0", "in"), ("out0", "out"))}
    graph = Graph(tensors, (Stage("s", "map", (Axis("i0", 4),), body, ("out0",)),))
    assert from_json(json.loads(json.dumps(to_json(graph)))) == graph


def test_capture_gives_json_that_is_a_graph_again() -> None:
    text = json.dumps(capture(nn.Softmax(-1).eval(), [torch.randn(3, 4)]), allow_nan=False)
    graph = from_json(json.loads(text))
    assert isinstance(graph, Graph)
    assert json.dumps(to_json(graph)) == text
    assert [stage.monoid for stage in graph.stages] == ["max", None, "sum", None]


def test_stages_that_an_earlier_version_stored_are_read() -> None:
    stage = Stage("sum", "scan", (), X, ("tmp0",), (Axis("r0", 3),), "sum", ("r0",))
    assert from_json({**to_json(stage), "reverse": False, "exclusive": False}) == stage


def test_names_are_in_abi_order_and_producers_are_found() -> None:
    tensors = {f"in{k}": Tensor(f"in{k}", (), (), "f32", "in") for k in (10, 2, 0)}
    tensors["out0"] = Tensor("out0", (), (), "f32", "out")
    stage = Stage("s", "map", (), Load("in10", ()), ("out0",))
    graph = Graph(tensors, (stage,))
    assert graph.names("in") == ["in0", "in2", "in10"]
    assert graph.producer("out0") is stage
    assert graph.producer("in0") is None


@pytest.mark.parametrize("monoid", ["argmax", "welford"])
def test_a_stage_must_name_as_many_results_as_its_monoid_has(monoid: str) -> None:
    with pytest.raises(ValueError, match=f"{MONOIDS[monoid]} outputs"):
        Stage("s", "reduce", (), X, ("out0",), (Axis("r0", 3),), monoid)


def test_a_map_has_no_monoid() -> None:
    with pytest.raises(ValueError, match="a map has no monoid"):
        Stage("s", "map", (), X, ("out0",), monoid="sum")


def test_loads_are_found_inside_indirect_indices_and_rewritten_bottom_up() -> None:
    inner = Load("in1", (const(0),))
    outer = Load("in0", (axis("i0").__class__(((1, Indirect(inner)),)),))
    assert list(loads(Op("neg", (outer,), "f32"))) == [outer, inner]
    assert [node for node in nodes(Op("neg", (outer,), "f32")) if isinstance(node, Load)] == [inner, outer], "bottom-up"
    renamed = rewrite(outer, lambda node: Load("in9", node.index) if node == inner else node)
    assert [load.tensor for load in loads(renamed)] == ["in0", "in9"]


@pytest.mark.parametrize(("name", "args"), [("add", (X,)), ("sqrt", (X, X)), ("cbrt", (X,))])
def test_an_operator_takes_as_many_arguments_as_it_has(name: str, args: tuple[Expr, ...]) -> None:
    with pytest.raises(ValueError, match=f"got {name} of {len(args)}"):
        Op(name, args, "f32")
