"""A transposed convolution of wide images."""

import torch
import torch.nn as nn

batch_size = 4
in_channels = 24
out_channels = 16
kernel_size = 3
height_in = 28
width_in = 72


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.up = nn.ConvTranspose2d(in_channels, out_channels, kernel_size, bias=True)

    def forward(self, x):
        return self.up(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, height_in, width_in)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
