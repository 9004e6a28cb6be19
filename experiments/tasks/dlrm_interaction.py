"""DLRM's interaction: dot products of all pairs of a sample's features, beside the dense one."""

import torch
from torch import nn

BATCH = 2048
FIELDS = 26
WIDTH = 64


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        rows, columns = torch.tril_indices(features, features, -1)
        self.register_buffer("rows", rows)
        self.register_buffer("columns", columns)

    def forward(self, dense: torch.Tensor, embedded: torch.Tensor) -> torch.Tensor:
        features = torch.cat((dense.unsqueeze(1), embedded), dim=1)
        pairs = torch.bmm(features, features.transpose(1, 2))[:, self.rows, self.columns]
        return torch.cat((dense, pairs), dim=1)


def get_inputs():
    return [torch.randn(BATCH, WIDTH), torch.randn(BATCH, FIELDS, WIDTH)]


def get_init_inputs():
    return [FIELDS + 1]
