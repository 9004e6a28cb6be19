"""A product whose inner dimension is short."""

import torch
import torch.nn as nn

M = 1536
N = 1024
K = 24


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, A, B):
        return torch.matmul(A, B)


def get_inputs():
    return [torch.rand(M, K), torch.rand(K, N)]


def get_init_inputs():
    return []
