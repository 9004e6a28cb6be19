"""Transposed convolution, pooling, hard tanh, mean over the plane, tanh."""

import torch
import torch.nn as nn

batch_size = 4
in_channels = 24
out_channels = 24
height = width = 32
kernel_size = 3
maxpool_size = 2
hardtanh_min = -0.5
hardtanh_max = 0.5


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, maxpool_size, hardtanh_min, hardtanh_max):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose2d(in_channels, out_channels, kernel_size, stride=1, padding=1)
        self.maxpool = nn.MaxPool2d(kernel_size=maxpool_size, stride=maxpool_size)
        self.hardtanh = nn.Hardtanh(min_val=hardtanh_min, max_val=hardtanh_max)

    def forward(self, x):
        x = self.conv_transpose(x)
        x = self.maxpool(x)
        x = self.hardtanh(x)
        x = torch.mean(x, dim=(2, 3), keepdim=True)
        return torch.tanh(x)


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, maxpool_size, hardtanh_min, hardtanh_max]
