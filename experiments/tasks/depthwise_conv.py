"""Depthwise 3×3 convolution and ReLU6, the middle of a MobileNet block."""

import torch
from torch import nn

BATCH = 8
CHANNELS = 128
SIDE = 56


class Model(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.relu6(self.conv(x))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS]
