"""From one projection to queries, keys and values by head: bias, scale and transposition."""

import torch
from torch import nn

BATCH = 4
LENGTH = 512
HEADS = 16
WIDTH = 64


class Model(nn.Module):
    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(3 * heads * width))
        self.scale = width**-0.5

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        heads = (x + self.bias).view(BATCH, LENGTH, 3, HEADS, WIDTH).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind(0)
        return (query * self.scale).contiguous(), key.contiguous(), value.contiguous()


def get_inputs():
    return [torch.randn(BATCH, LENGTH, 3 * HEADS * WIDTH)]


def get_init_inputs():
    return [HEADS, WIDTH]
