"""A product of matrices with odd sizes."""

import torch
import torch.nn as nn

M = 517
K = 301
N = 643


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, A, B):
        return A.matmul(B)


def get_inputs():
    return [torch.rand(M, K), torch.rand(K, N)]


def get_init_inputs():
    return []
