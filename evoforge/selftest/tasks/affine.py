"""A row scaled and shifted by eight weights each, of which the shifts begin at zero."""

import torch
from torch import nn

M = 1024


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(8) + 0.5)
        self.shift = nn.Parameter(torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight + self.shift


def get_inputs():
    return [torch.randn(M, 8)]


def get_init_inputs():
    return []
