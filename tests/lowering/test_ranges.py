"""Values of integer inputs that torch takes, and those that it raises an error for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as fn

from evoforge.lowering.capture import capture_graph
from evoforge.lowering.ranges import accepted


class Call(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


TABLE, IDS = torch.randn(5, 7), torch.tensor([0, 3, 1, 4])
ROWS = torch.randn(4, 7)
CASES: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "embedding": (lambda i, t: fn.embedding(i, t), [IDS, TABLE]),
    "short": (lambda i, t: fn.embedding(i, t), [IDS.int(), TABLE]),
    "computed_table": (lambda i, t: fn.embedding(i, t.exp() * 2), [IDS, TABLE]),
    "bag": (lambda i, t: fn.embedding_bag(i.view(2, 2), t), [IDS, TABLE]),
    "index_select": (lambda i, t: t.index_select(0, i), [IDS, TABLE]),
    "gather": (lambda i, x: x.gather(1, i[:, None]), [IDS, ROWS]),
    "from_the_end": (lambda i, t: t[i] + 1, [IDS, TABLE]),
    "short_from_the_end": (lambda i, t: t[:, i], [IDS.int(), TABLE]),
    "twice": (lambda i, t, x: t[i] + x.gather(1, i[:, None]), [IDS, TABLE, ROWS]),
    "cross_entropy": (lambda i, x: fn.cross_entropy(x, i), [IDS, ROWS]),
    "cross_entropy_spared": (lambda i, x: fn.cross_entropy(x, i, ignore_index=-2, reduction="none"), [IDS, ROWS]),
    "divisor": (lambda i: 7 // i, [IDS + 1]),
    "divisor_beside": (lambda i, j: j % i, [IDS + 1, IDS]),
}


@pytest.mark.parametrize("case", CASES)
def test_what_torch_refuses_lies_outside(case: str) -> None:
    function, inputs = CASES[case]
    found = accepted(capture_graph(Call(function), inputs))
    assert set(found) == {"in0"}
    for value in (*range(-9, 10), -100, 2**31 - 1):
        given = inputs[0].clone()
        given[2] = value
        try:
            function(given, *inputs[1:])
            refused = False
        except (IndexError, RuntimeError):
            refused = True
        assert any(low <= value <= high for low, high in found["in0"]) != refused, f"{value} and {found}"


def test_what_is_made_of_inputs_is_not_looked_into() -> None:
    def computed(i: torch.Tensor, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return fn.embedding(i.clamp(0, 4), t) + t[x.long()] + i[:, None] * 2

    assert accepted(capture_graph(Call(computed), [IDS, torch.ones(4), TABLE])) == {}
