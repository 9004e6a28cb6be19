"""A transposed convolution of sequences with stride, padding and dilation."""

import torch
import torch.nn as nn

batch_size = 8
in_channels = 32
out_channels = 48
kernel_size = 3
length = 501
stride = 2
padding = 1
dilation = 3


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, dilation):
        super().__init__()
        self.conv = nn.ConvTranspose1d(
            in_channels, out_channels, kernel_size, stride=stride, padding=padding, dilation=dilation
        )

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, length)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, stride, padding, dilation]
