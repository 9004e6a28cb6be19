"""A linear layer with int8 weights and a scale per output, for a few tokens."""

import torch
from torch import nn

TOKENS = 16
INPUTS = 2048
OUTPUTS = 4096


class Model(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (outputs, inputs), dtype=torch.int8))
        self.register_buffer("scale", (torch.rand(outputs) + 0.5) / 127)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.weight.to(x.dtype)) * self.scale


def get_inputs():
    return [torch.randn(TOKENS, INPUTS)]


def get_init_inputs():
    return [INPUTS, OUTPUTS]
