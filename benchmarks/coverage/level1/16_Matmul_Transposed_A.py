"""A product whose left factor comes transposed."""

import torch
import torch.nn as nn

M = 320
K = 512
N = 448


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, A, B):
        return torch.matmul(A.T, B)


def get_inputs():
    return [torch.rand(K, M), torch.rand(K, N)]


def get_init_inputs():
    return []
