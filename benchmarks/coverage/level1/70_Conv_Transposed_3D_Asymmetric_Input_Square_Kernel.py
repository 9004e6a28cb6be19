"""A transposed convolution of oblong volumes."""

import torch
import torch.nn as nn

batch_size = 2
in_channels = 16
out_channels = 8
kernel_size = 3
depth = 10
height = 18
width = 25


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.deconv = nn.ConvTranspose3d(in_channels, out_channels, kernel_size, bias=False)

    def forward(self, x):
        return self.deconv(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, depth, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
