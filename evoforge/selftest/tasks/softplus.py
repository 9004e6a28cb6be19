"""Softplus of uniform numbers, as KernelBench draws them."""

import torch
from torch import nn

M = 256
N = 256


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.softplus(x)


def get_inputs():
    return [torch.rand(M, N)]


def get_init_inputs():
    return []
