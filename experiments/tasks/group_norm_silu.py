"""GroupNorm and SiLU, the pair in front of every convolution of a diffusion model."""

import torch
from torch import nn

BATCH = 8
CHANNELS = 256
SIDE = 64
GROUPS = 32
WORKLOADS = [{"name": "large"}, {"name": "small", "BATCH": 2, "SIDE": 32}]


class Model(nn.Module):
    def __init__(self, groups: int, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.silu(self.norm(x))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [GROUPS, CHANNELS]
