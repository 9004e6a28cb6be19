"""One step of AdamW: new parameters and both moments."""

import torch
from torch import nn

SIZE = 4 * 1024 * 1024
RATE = 1e-3
DECAY = 0.01
BETA1 = 0.9
BETA2 = 0.999
EPS = 1e-8
STEP = 10


class Model(nn.Module):
    def forward(
        self, weight: torch.Tensor, grad: torch.Tensor, mean: torch.Tensor, square: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mean = BETA1 * mean + (1 - BETA1) * grad
        square = BETA2 * square + (1 - BETA2) * grad * grad
        step = mean / (1 - BETA1**STEP) / ((square / (1 - BETA2**STEP)).sqrt() + EPS)
        return weight * (1 - RATE * DECAY) - RATE * step, mean, square


def get_inputs():
    return [torch.randn(SIZE), torch.randn(SIZE), torch.randn(SIZE), torch.rand(SIZE)]


def get_init_inputs():
    return []
