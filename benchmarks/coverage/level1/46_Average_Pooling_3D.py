"""Average pooling of volumes with overlap and padding."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 4
channels = 12
depth = 24
height = 36
width = 40
kernel_size = 3
stride = 2
padding = 1


class Model(nn.Module):
    def __init__(self, kernel_size, stride, padding):
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding

    def forward(self, x):
        return F.avg_pool3d(x, self.kernel_size, self.stride, self.padding)


def get_inputs():
    return [torch.rand(batch_size, channels, depth, height, width)]


def get_init_inputs():
    return [kernel_size, stride, padding]
