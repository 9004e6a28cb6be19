"""A linear layer for one token: matrix times vector."""

import torch
from torch import nn

OUTPUTS = 4096
INPUTS = 4096


class Model(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


def get_inputs():
    return [torch.randn(1, INPUTS)]


def get_init_inputs():
    return [INPUTS, OUTPUTS]
