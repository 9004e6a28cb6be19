"""A convolution of square images with an oblong kernel and bias."""

import torch
import torch.nn as nn

batch_size = 4
in_channels = 16
out_channels = 24
kernel_size = (3, 7)
side = 50


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, bias=True):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, bias=bias)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(batch_size, in_channels, side, side)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
