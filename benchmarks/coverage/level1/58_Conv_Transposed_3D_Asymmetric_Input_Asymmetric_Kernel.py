"""A transposed convolution of oblong volumes with an oblong kernel."""

import torch
import torch.nn as nn

batch_size = 2
in_channels = 8
out_channels = 8
kernel_size = (3, 5, 7)
depth = 10
height = 16
width = 20


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride=(1, 1, 1)):
        super().__init__()
        self.conv = nn.ConvTranspose3d(in_channels, out_channels, kernel_size, stride=stride, bias=False)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, depth, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
