"""Rows as bytes and a scale."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        s = (x * 1.5).abs().amax(-1, keepdim=True) / 127
        q = torch.round(x * 1.5 / s).clamp(-127, 127)
        return q.to(torch.int8), s


def get_inputs():
    return [torch.randn(40, 101)]


def get_init_inputs():
    return []
