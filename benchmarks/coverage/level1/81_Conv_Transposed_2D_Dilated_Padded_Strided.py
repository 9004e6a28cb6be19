"""A transposed convolution of images with stride, padding and dilation."""

import torch
import torch.nn as nn

batch_size = 2
in_channels = 24
out_channels = 32
kernel_size = 3
height_in = 24
width_in = 45
stride = 3
padding = 1
dilation = 2


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, bias=False):
        super().__init__()
        self.conv = nn.ConvTranspose2d(
            in_channels, out_channels, kernel_size, stride=stride, padding=padding, dilation=dilation, bias=bias
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, height_in, width_in)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, stride, padding, dilation]
