"""Causal self-attention of one sequence."""

import torch
from torch import nn

BATCH = 1
HEADS = 8
LENGTH = 1024
WIDTH = 64


class Model(nn.Module):
    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)


def get_inputs():
    shape = BATCH, HEADS, LENGTH, WIDTH
    return [torch.randn(shape), torch.randn(shape), torch.randn(shape)]


def get_init_inputs():
    return []
