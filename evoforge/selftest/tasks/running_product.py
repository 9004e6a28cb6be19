"""Running products of uniform numbers, as KernelBench draws them: before long they are zero."""

import torch
from torch import nn

M = 32
N = 1024


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumprod(x, 1)


def get_inputs():
    return [torch.rand(M, N)]


def get_init_inputs():
    return []
