"""The end of a residual block: batch norm at inference, the shortcut, ReLU."""

import torch
from torch import nn

BATCH = 8
CHANNELS = 256
SIDE = 56


class Model(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias)
        nn.init.normal_(self.norm.running_mean)
        nn.init.uniform_(self.norm.running_var, 0.5, 1.5)

    def forward(self, x: torch.Tensor, shortcut: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(x) + shortcut)


def get_inputs():
    shape = BATCH, CHANNELS, SIDE, SIDE
    return [torch.randn(shape), torch.randn(shape)]


def get_init_inputs():
    return [CHANNELS]
