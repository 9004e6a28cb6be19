"""Rewrites of long graphs: what cannot pay is not tried."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from evoforge.lowering import reassociated, rewrites
from evoforge.lowering.capture import capture_graph
from evoforge.lowering.ir import loads
from evoforge.lowering.simplify import eliminate_dead


class Residual(nn.Module):
    """Every layer adds a sum to what all later ones read."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64)) for _ in range(layers)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x.sum(-1)


class Recurrent(nn.Module):
    """States that are linear in the ones before, and a sum of each."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        h, found = torch.zeros_like(b[0]), []
        for t in range(len(a)):
            h = a[t] * h + b[t]
            found.append(h.sum(-1))
        return torch.stack(found)


def test_sums_that_others_read_are_not_put_in_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def counted(*arguments: Any) -> Any:
        tried.append(arguments)
        return eliminate_dead(*arguments)

    monkeypatch.setattr(reassociated, "eliminate_dead", counted)
    graph = capture_graph(Residual(6).eval(), [torch.zeros(64, 64)])
    assert rewrites.apply(graph, ["reassociated"]) != graph  # the last layer's
    assert len(tried) <= 2


def test_a_long_recurrence_is_followed_so_far_and_no_further() -> None:
    graph = capture_graph(Recurrent(), [torch.zeros(250, 3, 8), torch.zeros(250, 3, 8)])
    assert rewrites.apply(graph, ["reassociated"]) == graph


def test_stages_of_several_layers_keep_their_names_apart() -> None:
    """What a rewrite calls a stage of the first layer, torch may have called one of the second."""

    class Layers(nn.Module):
        def forward(self, q: torch.Tensor) -> torch.Tensor:
            for _ in range(3):
                q = nn.functional.scaled_dot_product_attention(q, q * 2, q) + q
            return q

    graph = capture_graph(Layers(), [torch.zeros(1, 2, 40, 8)])
    for name in rewrites.available(graph):
        made, known = rewrites.apply(graph, [name]), {"in0"}
        for stage in made.stages:
            assert {load.tensor for load in loads(stage.body)} <= known, name
            known |= {out for out in stage.outputs if out}
        assert len(made.by_name) == len(made.stages)
