"""A depthwise convolution with a column as its kernel."""

import torch
import torch.nn as nn

batch_size = 4
in_channels = 40
kernel_size = 5
side = 90


class Model(nn.Module):
    def __init__(self, in_channels, kernel_size):
        super().__init__()
        self.conv2d = nn.Conv2d(in_channels, in_channels, kernel_size=(kernel_size, 1), groups=in_channels, bias=False)

    def forward(self, x):
        return self.conv2d(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, side, side)]


def get_init_inputs():
    return [in_channels, kernel_size]
