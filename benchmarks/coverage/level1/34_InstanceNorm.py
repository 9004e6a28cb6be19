"""Instance normalisation of an image batch."""

import torch
import torch.nn as nn

batch_size = 8
features = 40
dim1 = 72
dim2 = 56


class Model(nn.Module):
    def __init__(self, num_features):
        super().__init__()
        self.inorm = nn.InstanceNorm2d(num_features=num_features)

    def forward(self, x):
        return self.inorm(x)


def get_inputs():
    return [torch.rand(batch_size, features, dim1, dim2)]


def get_init_inputs():
    return [features]
