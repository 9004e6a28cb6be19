"""Attention with a learned bias in bfloat16, softmax in float32."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.b = nn.Parameter(torch.randn(3, 37, 37).bfloat16())

    def forward(self, q, k, v):
        s = q @ k.transpose(-2, -1) * 0.177 + self.b
        return torch.softmax(s.float(), -1).to(q.dtype) @ v


def get_inputs():
    return [torch.randn(4, 3, 37, 32).bfloat16() for _ in range(3)]


def get_init_inputs():
    return []
