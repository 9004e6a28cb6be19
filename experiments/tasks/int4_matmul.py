"""A linear layer with int4 weights, two in a byte, and a scale per group, for a few tokens."""

import torch
from torch import nn

TOKENS = 16
INPUTS = 2048
OUTPUTS = 4096
GROUP = 128


class Model(nn.Module):
    def __init__(self, inputs: int, outputs: int, group: int) -> None:
        super().__init__()
        self.register_buffer("packed", torch.randint(0, 256, (outputs, inputs // 2), dtype=torch.uint8))
        self.register_buffer("scale", (torch.rand(outputs, inputs // group, 1) + 0.5) / 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        whole = torch.stack((self.packed & 15, self.packed >> 4), dim=-1).to(x.dtype) - 8
        weight = whole.view(OUTPUTS, INPUTS // GROUP, GROUP) * self.scale
        return nn.functional.linear(x, weight.view(OUTPUTS, INPUTS))


def get_inputs():
    return [torch.randn(TOKENS, INPUTS)]


def get_init_inputs():
    return [INPUTS, OUTPUTS, GROUP]
