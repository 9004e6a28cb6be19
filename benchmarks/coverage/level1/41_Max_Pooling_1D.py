"""Dilated, padded maximum pooling of sequences."""

import torch
import torch.nn as nn

batch_size = 16
features = 64
sequence_length = 1001
kernel_size = 6
stride = 2
padding = 3
dilation = 2


class Model(nn.Module):
    def __init__(self, kernel_size, stride=None, padding=0, dilation=1):
        super().__init__()
        self.pool = nn.MaxPool1d(kernel_size, stride=stride, padding=padding, dilation=dilation)

    def forward(self, x):
        return self.pool(x)


def get_inputs():
    return [torch.randn(batch_size, features, sequence_length)]


def get_init_inputs():
    return [kernel_size, stride, padding, dilation]
