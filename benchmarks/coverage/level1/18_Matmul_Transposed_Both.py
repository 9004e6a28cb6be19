"""A product of which both factors come transposed."""

import torch
import torch.nn as nn

M = 256
K = 576
N = 320


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return torch.mm(A.t(), B.transpose(0, 1))


def get_inputs():
    return [torch.rand(K, M), torch.rand(N, K)]


def get_init_inputs():
    return []
