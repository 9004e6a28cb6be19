"""Average pooling of sequences, padding counted."""

import torch
import torch.nn as nn

batch_size = 8
in_channels = 48
input_length = 1000
kernel_size = 4
stride = 1
padding = 2


class Model(nn.Module):
    def __init__(self, kernel_size, stride=1, padding=0):
        super().__init__()
        self.avg_pool = nn.AvgPool1d(kernel_size=kernel_size, stride=stride, padding=padding)

    def forward(self, x):
        return self.avg_pool(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, input_length)]


def get_init_inputs():
    return [kernel_size, stride, padding]
