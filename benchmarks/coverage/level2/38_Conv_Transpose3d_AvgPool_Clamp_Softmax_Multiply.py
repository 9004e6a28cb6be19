"""Transposed convolution of volumes, pooling, clamp, softmax over channels, factor."""

import torch
import torch.nn as nn

batch_size = 2
in_channels = 12
out_channels = 16
depth, height, width = 6, 12, 12
kernel_size = 3
stride = 2
pool_kernel_size = 2


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, pool_kernel_size):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose3d(
            in_channels, out_channels, kernel_size, stride, padding=1, output_padding=1
        )
        self.avg_pool = nn.AvgPool3d(pool_kernel_size)

    def forward(self, x):
        x = self.conv_transpose(x)
        x = self.avg_pool(x)
        x = torch.clamp(x, 0.0, 1.0)
        x = torch.softmax(x, dim=1)
        return x * 2


def get_inputs():
    return [torch.randn(batch_size, in_channels, depth, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, stride, pool_kernel_size]
