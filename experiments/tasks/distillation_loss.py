"""Distillation: KL divergence of a student's distribution from its teacher's, per row."""

import torch
from torch import nn

ROWS = 512
CLASSES = 8192
TEMPERATURE = 2.0


class Model(nn.Module):
    def forward(self, student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
        ours = torch.log_softmax(student / TEMPERATURE, dim=-1)
        theirs = torch.log_softmax(teacher / TEMPERATURE, dim=-1)
        return (theirs.exp() * (theirs - ours)).sum(-1) * TEMPERATURE**2


def get_inputs():
    return [torch.randn(ROWS, CLASSES), torch.randn(ROWS, CLASSES)]


def get_init_inputs():
    return []
