"""Squeeze and excitation: channels scaled by a small network of their means."""

import torch
from torch import nn

BATCH = 32
CHANNELS = 256
SIDE = 28
REDUCED = 16


class Model(nn.Module):
    def __init__(self, channels: int, reduced: int) -> None:
        super().__init__()
        self.down = nn.Linear(channels, reduced)
        self.up = nn.Linear(reduced, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = torch.sigmoid(self.up(torch.relu(self.down(x.mean((2, 3))))))
        return x * scale[:, :, None, None]


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, REDUCED]
