"""The first half of a feed-forward layer: a linear layer and GELU."""

import torch
from torch import nn

TOKENS = 512
INPUTS = 768
OUTPUTS = 3072


class Model(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(self.linear(x))


def get_inputs():
    return [torch.randn(TOKENS, INPUTS)]


def get_init_inputs():
    return [INPUTS, OUTPUTS]
