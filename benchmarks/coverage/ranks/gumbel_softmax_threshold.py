"""Softmax of a noisy temperature, small weights cut."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, g):
        y = torch.softmax((x * 1.7 + g) / 0.5, -1)
        return y * (y > 1 / 64)


def get_inputs():
    return [torch.randn(33, 101), torch.randn(33, 101)]


def get_init_inputs():
    return []
