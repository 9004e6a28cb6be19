"""A four-dimensional tensor times a matrix, as an einsum."""

import torch
import torch.nn as nn

b = 4
i = 20
j = 33
d = 128
k = 192


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, A, B):
        return torch.einsum("bijd,dk->bijk", A, B)


def get_inputs():
    return [torch.rand(b, i, j, d), torch.rand(d, k)]


def get_init_inputs():
    return []
