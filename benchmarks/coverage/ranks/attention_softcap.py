"""Attention whose scores saturate."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, q, k, v):
        s = torch.tanh(q @ k.transpose(-2, -1) / 30) * 30
        return torch.softmax(s * 1.25, -1) @ v


def get_inputs():
    return [torch.randn(2, 4, 45, 32) for _ in range(3)]


def get_init_inputs():
    return []
