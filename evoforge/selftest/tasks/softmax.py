"""Softmax over the last dimension, whose length is odd."""

import torch
from torch import nn

M = 128
N = 515


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(M, N)]


def get_init_inputs():
    return []
