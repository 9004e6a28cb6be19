"""out = a + 2 b, on a ragged and on a wide workload."""

import torch
from torch import nn

M = 37
N = 61
WORKLOADS = [{"name": "ragged"}, {"name": "wide", "M": 64, "N": 1024}]


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a + 2.0 * b


def get_inputs():
    return [torch.randn(M, N), torch.randn(M, N)]


def get_init_inputs():
    return []
