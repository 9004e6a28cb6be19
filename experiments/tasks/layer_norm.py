"""LayerNorm over the last dimension, with weight and bias."""

import torch
from torch import nn

M = 2048
N = 4096


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def get_inputs():
    return [torch.randn(M, N)]


def get_init_inputs():
    return [N]
