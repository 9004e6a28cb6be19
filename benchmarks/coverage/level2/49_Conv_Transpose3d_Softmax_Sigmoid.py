"""Transposed convolution of volumes, softmax over channels, sigmoid."""

import torch
import torch.nn as nn

batch_size = 2
in_channels = 8
out_channels = 16
D, H, W = 7, 11, 13
kernel_size = 3
stride = 2


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, bias=True):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose3d(
            in_channels, out_channels, kernel_size, stride=stride, padding=1, output_padding=1, bias=bias
        )
        self.softmax = nn.Softmax(dim=1)
        self.sigmoid = nn.Sigmoid()

    def forward(self, x):
        x = self.conv_transpose(x)
        x = self.softmax(x)
        return self.sigmoid(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, D, H, W)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, stride]
