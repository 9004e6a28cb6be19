"""A plain transposed convolution of cubes."""

import torch
import torch.nn as nn

batch_size = 2
in_channels = 12
out_channels = 12
kernel_size = 3
depth = 16
height = 16
width = 16


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, groups=1, bias=False):
        super().__init__()
        self.deconv = nn.ConvTranspose3d(
            in_channels,
            out_channels,
            kernel_size=(kernel_size,) * 3,
            stride=stride,
            padding=padding,
            groups=groups,
            bias=bias,
        )

    def forward(self, x):
        return self.deconv(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, depth, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
