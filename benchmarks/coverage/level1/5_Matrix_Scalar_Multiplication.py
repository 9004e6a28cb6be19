"""A matrix times a number."""

import torch
import torch.nn as nn

M = 2048
N = 1536
s = 3.14


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, A, s):
        return A * s


def get_inputs():
    return [torch.rand(M, N), s]


def get_init_inputs():
    return []
