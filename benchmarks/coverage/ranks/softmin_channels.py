"""Softmax of negated channels."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.randn(17, 1, 1))

    def forward(self, x):
        return torch.softmax(-(x * self.a + 0.25), 1)


def get_inputs():
    return [torch.randn(3, 17, 9, 11)]


def get_init_inputs():
    return []
