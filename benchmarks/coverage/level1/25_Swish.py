"""Swish written out: x times its sigmoid."""

import torch
import torch.nn as nn

batch_size = 512
dim = 3000


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return x * torch.sigmoid(x)


def get_inputs():
    return [torch.randn(batch_size, dim)]


def get_init_inputs():
    return []
