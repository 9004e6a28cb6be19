"""A large square matrix product whose operands may each be taken as two brain floats."""

import torch
from torch import nn

M = 1024
N = 1024
K = 1024

TOLERANCE = {"precision": "split"}


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N)]


def get_init_inputs():
    return []
