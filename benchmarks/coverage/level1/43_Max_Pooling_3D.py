"""Dilated maximum pooling of volumes."""

import torch
import torch.nn as nn

batch_size = 2
channels = 10
dim1 = 26
dim2 = 28
dim3 = 30
kernel_size = 3
stride = 2
padding = 1
dilation = 2


class Model(nn.Module):
    def __init__(self, kernel_size, stride=None, padding=0, dilation=1):
        super().__init__()
        self.maxpool = nn.MaxPool3d(kernel_size, stride, padding, dilation)

    def forward(self, x):
        return self.maxpool(x)


def get_inputs():
    return [torch.randn(batch_size, channels, dim1, dim2, dim3)]


def get_init_inputs():
    return [kernel_size, stride, padding, dilation]
