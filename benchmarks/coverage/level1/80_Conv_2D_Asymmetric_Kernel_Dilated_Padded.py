"""A dilated, padded convolution with an oblong kernel."""

import torch
import torch.nn as nn

batch_size = 4
in_channels = 16
out_channels = 24
kernel_size = (5, 3)
side = 48
padding = (2, 1)
dilation = (2, 3)


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=(0, 0), dilation=(1, 1)):
        super().__init__()
        self.conv2d = nn.Conv2d(
            in_channels, out_channels, kernel_size, stride=stride, padding=padding, dilation=dilation, bias=False
        )

    def forward(self, x):
        return self.conv2d(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, side, side)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, 1, padding, dilation]
