"""A three-dimensional tensor times a matrix."""

import torch
import torch.nn as nn

N = 8
M = 96
K = 256
L = 192


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, A, B):
        return torch.matmul(A, B)


def get_inputs():
    return [torch.rand(N, M, K), torch.rand(K, L)]


def get_init_inputs():
    return []
