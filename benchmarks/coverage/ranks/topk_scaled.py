"""The greatest three of what was computed."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return (x * 1.5).topk(3, -1)


def get_inputs():
    return [torch.randn(40, 64)]


def get_init_inputs():
    return []
