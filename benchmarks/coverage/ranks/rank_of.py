"""The rank of every element."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.argsort(-1).argsort(-1)


def get_inputs():
    return [torch.randn(40, 64)]


def get_init_inputs():
    return []
