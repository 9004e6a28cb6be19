"""Running product along a dimension, soon zero."""

import torch
import torch.nn as nn

batch_size = 256
length = 3000
dim = 1


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        return torch.cumprod(x, dim=self.dim)


def get_inputs():
    return [torch.rand(batch_size, length)]


def get_init_inputs():
    return [dim]
