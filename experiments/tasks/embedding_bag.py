"""Weighted sums of embedding rows, a bag per sample, as recommenders pool a user's history."""

import torch
from torch import nn

TABLE = 200_000
WIDTH = 64
BATCH = 4096
BAG = 20


class Model(nn.Module):
    def __init__(self, table: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(table, width)

    def forward(self, items: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return (self.table(items) * weights.unsqueeze(-1)).sum(1)


def get_inputs():
    return [torch.randint(0, TABLE, (BATCH, BAG)), torch.rand(BATCH, BAG)]


def get_init_inputs():
    return [TABLE, WIDTH]
