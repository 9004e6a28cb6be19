"""Convolution, hard swish, ReLU."""

import torch
import torch.nn as nn

batch_size = 8
in_channels = 10
out_channels = 20
height = width = 40
kernel_size = 3


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.act = nn.Sequential(nn.Hardswish(), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.conv(x))


def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
