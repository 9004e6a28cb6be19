"""A matrix product with a short inner dimension: it writes far more than it reads."""

import torch
from torch import nn

M = 2048
N = 4096
K = 16


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N)]


def get_init_inputs():
    return []
