"""Rows stretched to their range."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        y = x * 0.3 + 1
        return (y - y.amin(-1, keepdim=True)) / (y.amax(-1, keepdim=True) - y.amin(-1, keepdim=True))


def get_inputs():
    return [torch.randn(40, 101)]


def get_init_inputs():
    return []
