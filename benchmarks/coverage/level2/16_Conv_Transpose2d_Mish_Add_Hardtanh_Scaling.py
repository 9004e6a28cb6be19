"""Transposed convolution, Mish, a constant, hard tanh and a factor."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 4
in_channels = 24
out_channels = 16
height, width = 20, 28
kernel_size = 3
stride = 2
add_value = 0.5
scale = 2


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, add_value, scale):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose2d(
            in_channels, out_channels, kernel_size, stride, padding=1, output_padding=1
        )
        self.add_value = add_value
        self.scale = scale

    def forward(self, x):
        x = self.conv_transpose(x)
        x = F.mish(x)
        x = x + self.add_value
        x = F.hardtanh(x, min_val=-1, max_val=1)
        return x * self.scale


def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, stride, add_value, scale]
