"""A transposed convolution of square images with an oblong kernel."""

import torch
import torch.nn as nn

batch_size = 4
in_channels = 16
out_channels = 16
kernel_size = (3, 7)
width = 36
height = 36


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, bias=False):
        super().__init__()
        self.conv = nn.ConvTranspose2d(in_channels, out_channels, kernel_size, bias=bias)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
