"""A convolution of sequences with stride and dilation."""

import torch
import torch.nn as nn

batch_size = 8
in_channels = 48
out_channels = 96
kernel_size = 3
length = 1500
stride = 3
dilation = 4


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride=1, dilation=1):
        super().__init__()
        self.conv = nn.Conv1d(in_channels, out_channels, kernel_size, stride=stride, dilation=dilation, bias=False)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, length)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, stride, dilation]
