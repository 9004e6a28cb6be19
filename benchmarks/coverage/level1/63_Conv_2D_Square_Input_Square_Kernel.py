"""The first convolution of an image classifier: large kernel, stride 4."""

import torch
import torch.nn as nn

batch_size = 2
in_channels = 3
num_filters = 64
side = 131


class Model(nn.Module):
    def __init__(self, in_channels, num_filters):
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, num_filters, kernel_size=11, stride=4, padding=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv1(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, side, side)]


def get_init_inputs():
    return [in_channels, num_filters]
