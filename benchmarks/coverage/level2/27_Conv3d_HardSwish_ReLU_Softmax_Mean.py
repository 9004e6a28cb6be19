"""Convolution of volumes, hard swish, ReLU, softmax over channels, mean over the volume."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 4
in_channels = 3
out_channels = 16
depth, height, width = 13, 20, 20
kernel_size = 3


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, bias=True):
        super().__init__()
        self.conv = nn.Conv3d(in_channels, out_channels, kernel_size, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv(x)
        x = F.hardswish(x)
        x = F.relu(x)
        x = F.softmax(x, dim=1)
        return torch.mean(x, dim=[2, 3, 4])


def get_inputs():
    return [torch.randn(batch_size, in_channels, depth, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
