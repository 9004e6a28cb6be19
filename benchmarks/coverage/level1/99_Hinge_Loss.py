"""Mean hinge loss against labels of -1 and 1."""

import torch
import torch.nn as nn

batch_size = 4096
dim = 513


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.mean(torch.clamp(1 - predictions * targets, min=0))


def get_inputs():
    return [torch.randn(batch_size, dim), (torch.randint(0, 2, (batch_size, 1)) * 2 - 1).float()]


def get_init_inputs():
    return []
