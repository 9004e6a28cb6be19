"""Convolution and Mish, twice."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 4
in_channels = 6
out_channels = 20
height = width = 52
kernel_size = 3


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)

    def forward(self, x):
        x = self.conv(x)
        x = F.mish(x)
        return F.mish(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
