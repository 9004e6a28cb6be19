"""A transposed convolution with groups, stride, padding and dilation, all oblong."""

import torch
import torch.nn as nn

batch_size = 4
in_channels = 32
out_channels = 48
kernel_size = (3, 5)
height = 20
width = 36
stride = (2, 3)
padding = (1, 2)
dilation = (3, 1)
groups = 4


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, dilation, groups):
        super().__init__()
        self.conv = nn.ConvTranspose2d(
            in_channels,
            out_channels,
            kernel_size,
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=groups,
            bias=False,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, stride, padding, dilation, groups]
