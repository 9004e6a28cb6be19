"""Convolution of volumes, group norm, mean of the squares per sample."""

import torch
import torch.nn as nn

batch_size = 4
in_channels = 3
out_channels = 24
depth, height, width = 12, 20, 20
kernel_size = 3
num_groups = 6


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, num_groups):
        super().__init__()
        self.conv = nn.Conv3d(in_channels, out_channels, kernel_size)
        self.group_norm = nn.GroupNorm(num_groups, out_channels)
        nn.init.normal_(self.group_norm.weight)

    def forward(self, x):
        x = self.conv(x)
        x = self.group_norm(x).square()
        return x.mean(dim=[1, 2, 3, 4])


def get_inputs():
    return [torch.rand(batch_size, in_channels, depth, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, num_groups]
