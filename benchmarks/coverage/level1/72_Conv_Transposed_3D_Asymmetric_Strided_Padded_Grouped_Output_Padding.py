"""A grouped transposed convolution of volumes with stride, padding and output padding."""

import torch
import torch.nn as nn

batch_size = 2
in_channels = 16
out_channels = 16
kernel_size = (3, 5, 5)
depth = 8
height = 12
width = 16
stride = (2, 2, 2)
padding = (1, 2, 2)
output_padding = (1, 1, 1)
groups = 4


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, output_padding, groups):
        super().__init__()
        self.conv = nn.ConvTranspose3d(
            in_channels,
            out_channels,
            kernel_size,
            stride=stride,
            padding=padding,
            output_padding=output_padding,
            groups=groups,
            bias=False,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, depth, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, stride, padding, output_padding, groups]
