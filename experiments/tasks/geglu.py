"""GEGLU: one projection's halves, GELU of the one times the other."""

import torch
from torch import nn

M = 2048
N = 4096


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value, gate = x.chunk(2, dim=-1)
        return value * nn.functional.gelu(gate)


def get_inputs():
    return [torch.randn(M, 2 * N)]


def get_init_inputs():
    return []
