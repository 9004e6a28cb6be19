"""A transposed convolution of volumes with stride, padding and dilation."""

import torch
import torch.nn as nn

batch_size = 2
in_channels = 12
out_channels = 16
kernel_size = 3
depth = 8
height = 13
width = 13
stride = 2
padding = 1
dilation = 3


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1):
        super().__init__()
        self.deconv = nn.ConvTranspose3d(
            in_channels, out_channels, kernel_size, stride=stride, padding=padding, dilation=dilation, bias=False
        )

    def forward(self, x):
        return self.deconv(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, depth, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, stride, padding, dilation]
