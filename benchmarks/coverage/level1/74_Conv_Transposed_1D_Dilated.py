"""A dilated transposed convolution of sequences."""

import torch
import torch.nn as nn

batch_size = 8
in_channels = 32
out_channels = 40
kernel_size = 5
length = 500
dilation = 3


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, dilation=1):
        super().__init__()
        self.deconv = nn.ConvTranspose1d(in_channels, out_channels, kernel_size, dilation=dilation)

    def forward(self, x):
        return self.deconv(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, length)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, dilation]
