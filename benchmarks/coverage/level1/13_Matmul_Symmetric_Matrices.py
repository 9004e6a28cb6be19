"""Product of two symmetric matrices."""

import torch
import torch.nn as nn

N = 360


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, A, B):
        return torch.matmul(A, B)


def symmetric(n):
    half = torch.rand(n, n)
    return (half + half.T) / 2


def get_inputs():
    return [symmetric(N), symmetric(N)]


def get_init_inputs():
    return []
