"""A product whose right factor comes transposed."""

import torch
import torch.nn as nn

M = 300
K = 512
N = 500


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, A, B):
        return A @ B.T


def get_inputs():
    return [torch.rand(M, K), torch.rand(N, K)]


def get_init_inputs():
    return []
