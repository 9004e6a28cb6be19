"""A gated pointwise chain as in feed-forward layers: GELU(gate + bias) · up, scaled and clamped."""

import torch
from torch import nn

M = 2048
N = 4096


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        hidden = torch.nn.functional.gelu(gate + self.bias) * up
        return torch.clamp(hidden * 0.5, -8.0, 8.0)


def get_inputs():
    return [torch.randn(M, N), torch.randn(M, N)]


def get_init_inputs():
    return [N]
