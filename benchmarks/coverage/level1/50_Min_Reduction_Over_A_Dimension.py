"""Smallest value over one dimension."""

import torch
import torch.nn as nn

batch_size = 16
dim1 = 320
dim2 = 384
reduce_dim = 2


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        return x.min(dim=self.dim).values


def get_inputs():
    return [torch.rand(batch_size, dim1, dim2)]


def get_init_inputs():
    return [reduce_dim]
