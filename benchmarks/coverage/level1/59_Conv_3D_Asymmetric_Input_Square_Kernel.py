"""A convolution of flat volumes whose kernel is one deep."""

import torch
import torch.nn as nn

batch_size = 4
in_channels = 3
out_channels = 32
kernel_size = 3
width = 48
height = 48
depth = 10


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, bias=False):
        super().__init__()
        self.conv3d = nn.Conv3d(in_channels, out_channels, (kernel_size, kernel_size, 1), bias=bias)

    def forward(self, x):
        return self.conv3d(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width, depth)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
