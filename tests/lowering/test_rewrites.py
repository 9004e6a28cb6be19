"""Rewrites of long graphs: what cannot pay is not tried."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from evoforge.lowering import reassociated, rewrites
from evoforge.lowering.capture import capture_graph
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
