"""A strided convolution of oblong volumes with an oblong kernel."""

import torch
import torch.nn as nn

batch_size = 2
in_channels = 4
out_channels = 24
kernel_size = (3, 5, 3)
depth = 12
height = 40
width = 52
stride = (1, 2, 2)
padding = (1, 2, 1)


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding):
        super().__init__()
        self.conv = nn.Conv3d(in_channels, out_channels, kernel_size, stride, padding, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, depth, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, stride, padding]
