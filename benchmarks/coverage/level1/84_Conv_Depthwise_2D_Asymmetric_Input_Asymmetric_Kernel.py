"""A depthwise convolution of wide images, everything oblong, two filters per channel."""

import torch
import torch.nn as nn

batch_size = 4
in_channels = 24
multiplier = 2
kernel_size = (3, 7)
height = 60
width = 120
stride = (2, 1)
padding = (1, 3)
dilation = (1, 1)


class Model(nn.Module):
    def __init__(self, in_channels, multiplier, kernel_size, stride, padding, dilation):
        super().__init__()
        self.conv = nn.Conv2d(
            in_channels,
            in_channels * multiplier,
            kernel_size,
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=in_channels,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, multiplier, kernel_size, stride, padding, dilation]
