"""A plain convolution of wide images."""

import torch
import torch.nn as nn

batch_size = 4
in_channels = 12
out_channels = 32
kernel_size = 3
height = 40
width = 96


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0):
        super().__init__()
        self.conv2d = nn.Conv2d(
            in_channels, out_channels, (kernel_size, kernel_size), stride=stride, padding=padding, bias=False
        )

    def forward(self, x):
        return self.conv2d(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
