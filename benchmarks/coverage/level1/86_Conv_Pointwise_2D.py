"""A pointwise convolution: a matrix product over the channels."""

import torch
import torch.nn as nn

batch_size = 4
in_channels = 48
out_channels = 96
width = 60
height = 60


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, bias=False):
        super().__init__()
        self.conv1x1 = nn.Conv2d(in_channels, out_channels, kernel_size=1, stride=1, padding=0, bias=bias)

    def forward(self, x):
        return self.conv1x1(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels]
