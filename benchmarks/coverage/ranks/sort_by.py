"""Rows in the order of others."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, keys):
        at = keys.argsort(-1)
        return x.gather(-1, at)


def get_inputs():
    return [torch.randn(40, 64), torch.randn(40, 64)]


def get_init_inputs():
    return []
