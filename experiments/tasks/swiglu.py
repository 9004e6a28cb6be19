"""The gate of a feed-forward layer: SiLU(gate + bias) · up."""

import torch
from torch import nn

M = 2048
N = 4096


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        return nn.functional.silu(gate + self.bias) * up


def get_inputs():
    return [torch.randn(M, N), torch.randn(M, N)]


def get_init_inputs():
    return [N]
