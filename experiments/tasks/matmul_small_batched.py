"""Thousands of small matrix products."""

import torch
from torch import nn

BATCH = 8192
SIDE = 16


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.bmm(a, b)


def get_inputs():
    return [torch.randn(BATCH, SIDE, SIDE), torch.randn(BATCH, SIDE, SIDE)]


def get_init_inputs():
    return []
