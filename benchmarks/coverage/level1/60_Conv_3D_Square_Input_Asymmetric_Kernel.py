"""A convolution of cubes with an oblong kernel."""

import torch
import torch.nn as nn

batch_size = 2
in_channels = 3
out_channels = 16
kernel_size = (3, 5, 7)
side = 22


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv3d(in_channels, out_channels, kernel_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, side, side, side)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
