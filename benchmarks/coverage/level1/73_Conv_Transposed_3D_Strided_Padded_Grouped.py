"""A grouped transposed convolution of volumes with stride and padding."""

import torch
import torch.nn as nn

batch_size = 2
in_channels = 24
out_channels = 24
kernel_size = 3
depth = 9
height = 14
width = 14
stride = 2
padding = 1
groups = 3


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, groups=1):
        super().__init__()
        self.conv = nn.ConvTranspose3d(in_channels, out_channels, kernel_size, stride, padding, groups=groups)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, depth, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, stride, padding, groups]
