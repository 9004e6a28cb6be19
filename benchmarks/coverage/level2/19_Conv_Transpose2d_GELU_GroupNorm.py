"""Transposed convolution, GELU and group norm."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 4
in_channels = 24
out_channels = 32
height = width = 28
kernel_size = 3
stride = 1
groups = 8
num_groups = 8


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, groups, num_groups):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose2d(in_channels, out_channels, kernel_size, stride=stride, groups=groups)
        self.group_norm = nn.GroupNorm(num_groups=num_groups, num_channels=out_channels)

    def forward(self, x):
        x = self.conv_transpose(x)
        x = F.gelu(x)
        return self.group_norm(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, stride, groups, num_groups]
