"""Rotary position embedding of queries and keys, in the halves form of most language models."""

import torch
from torch import nn

BATCH = 2
HEADS = 16
LENGTH = 1024
WIDTH = 64
BASE = 10000.0


def turned(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


class Model(nn.Module):
    def __init__(self, length: int, width: int, base: float) -> None:
        super().__init__()
        frequency = base ** (-torch.arange(0, width, 2) / width)
        angle = torch.arange(length)[:, None] * frequency
        self.register_buffer("cos", torch.cat((angle, angle), -1).cos())
        self.register_buffer("sin", torch.cat((angle, angle), -1).sin())

    def forward(self, query: torch.Tensor, key: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return query * self.cos + turned(query) * self.sin, key * self.cos + turned(key) * self.sin


def get_inputs():
    shape = BATCH, HEADS, LENGTH, WIDTH
    return [torch.randn(shape), torch.randn(shape)]


def get_init_inputs():
    return [LENGTH, WIDTH, BASE]
