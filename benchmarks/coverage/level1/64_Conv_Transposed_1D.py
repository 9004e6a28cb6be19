"""A plain transposed convolution of sequences."""

import torch
import torch.nn as nn

batch_size = 8
in_channels = 48
out_channels = 24
kernel_size = 3
length = 1000


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, output_padding=0):
        super().__init__()
        self.conv1d_t = nn.ConvTranspose1d(
            in_channels,
            out_channels,
            kernel_size,
            stride=stride,
            padding=padding,
            output_padding=output_padding,
            bias=False,
        )

    def forward(self, x):
        return self.conv1d_t(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, length)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
