"""Transposed convolution, factor, mean over the plane, sigmoid."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 4
in_channels = 16
out_channels = 40
height, width = 21, 21
kernel_size = 3
stride = 2
padding = 1
output_padding = 1
multiplier = 0.5


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, output_padding, multiplier):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose2d(
            in_channels, out_channels, kernel_size, stride=stride, padding=padding, output_padding=output_padding
        )
        self.multiplier = multiplier

    def forward(self, x):
        x = self.conv_transpose(x)
        x = x * self.multiplier
        x = F.adaptive_avg_pool2d(x, 1).flatten(1)
        return x.sigmoid()


def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, stride, padding, output_padding, multiplier]
