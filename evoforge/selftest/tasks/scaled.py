"""Rows times a scale that is an input, and 1 all over."""

import torch
from torch import nn

M = 256
N = 1024


class Model(nn.Module):
    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return x * scale


def get_inputs():
    return [torch.randn(M, N), torch.ones(N)]


def get_init_inputs():
    return []
