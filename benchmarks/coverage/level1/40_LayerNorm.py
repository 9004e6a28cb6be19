"""Layer normalisation over the last three dimensions."""

import torch
import torch.nn as nn

batch_size = 8
features = 32
dim1 = 80
dim2 = 64


class Model(nn.Module):
    def __init__(self, normalized_shape):
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape=normalized_shape)

    def forward(self, x):
        return self.ln(x)


def get_inputs():
    return [torch.rand(batch_size, features, dim1, dim2)]


def get_init_inputs():
    return [(features, dim1, dim2)]
