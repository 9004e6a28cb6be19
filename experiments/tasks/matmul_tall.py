"""A tall and skinny matrix times a small one."""

import torch
from torch import nn

M = 131072
N = 32
K = 32


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N)]


def get_init_inputs():
    return []
