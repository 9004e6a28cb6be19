"""Sparse matrix times vector by segments: rows padded to one width, each with its own length."""

import torch
from torch import nn

ROWS = 131072
COLUMNS = 131072
WIDTH = 32


class Model(nn.Module):
    def forward(
        self, values: torch.Tensor, columns: torch.Tensor, lengths: torch.Tensor, x: torch.Tensor
    ) -> torch.Tensor:
        inside = torch.arange(WIDTH) < lengths[:, None]
        return torch.where(inside, values * x[columns], 0.0).sum(-1)


def get_inputs():
    columns = torch.randint(0, COLUMNS, (ROWS, WIDTH), dtype=torch.int32)
    lengths = torch.randint(1, WIDTH + 1, (ROWS,), dtype=torch.int32)
    return [torch.randn(ROWS, WIDTH), columns, lengths, torch.randn(COLUMNS)]


def get_init_inputs():
    return []
