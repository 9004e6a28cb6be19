"""Product of two rectangular matrices."""

import torch
import torch.nn as nn

M = 256
K = 640
N = 384


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, A, B):
        return torch.mm(A, B)


def get_inputs():
    return [torch.rand(M, K), torch.rand(K, N)]


def get_init_inputs():
    return []
