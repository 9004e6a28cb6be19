"""out = 3 x + y in 32-bit integers."""

import torch
from torch import nn

N = 10007


class Model(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return 3 * x + y


def get_inputs():
    return [torch.randint(-1000, 1000, (N,), dtype=torch.int32), torch.randint(0, 9, (N,), dtype=torch.int32)]


def get_init_inputs():
    return []
