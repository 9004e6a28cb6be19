"""Attention with an additive mask."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, q, k, v, m):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=m)


def get_inputs():
    return [*[torch.randn(2, 4, 45, 32) for _ in range(3)], torch.randn(45, 45)]


def get_init_inputs():
    return []
