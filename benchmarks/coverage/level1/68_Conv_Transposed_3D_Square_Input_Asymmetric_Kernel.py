"""A transposed convolution of cubes, wider than deep in its kernel."""

import torch
import torch.nn as nn

batch_size = 2
in_channels = 8
out_channels = 12
kernel_depth = 3
kernel_width = 5
side = 14


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv_t = nn.ConvTranspose3d(in_channels, out_channels, kernel_size)

    def forward(self, x):
        return self.conv_t(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, side, side, side)]


def get_init_inputs():
    return [in_channels, out_channels, (kernel_depth, kernel_width, kernel_width)]
