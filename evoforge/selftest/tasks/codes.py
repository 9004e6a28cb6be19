"""Codes of eight bits between two layers that begin as copies of one."""

import copy

import torch
from torch import nn

M = 61
N = 512


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.first = nn.Linear(size, size)
        self.second = copy.deepcopy(self.first)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.clamp(torch.round(self.first(x) * 16), -128, 127) / 16)


def get_inputs():
    return [torch.randn(M, N)]


def get_init_inputs():
    return [N]
