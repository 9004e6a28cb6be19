"""Variance and mean per channel, the first half of batch norm in training."""

import torch
from torch import nn

BATCH = 16
CHANNELS = 128
SIDE = 56


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.var_mean(x, dim=(0, 2, 3), correction=0)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return []
