"""Attention of several heads, kept whole."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 4
num_heads = 6
sequence_length = 160
head_dim = 64


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, Q, K, V):
        return F.scaled_dot_product_attention(Q, K, V)


def get_inputs():
    return [
        torch.rand(batch_size, num_heads, sequence_length, head_dim),
        torch.rand(batch_size, num_heads, sequence_length, head_dim),
        torch.rand(batch_size, num_heads, sequence_length, head_dim),
    ]


def get_init_inputs():
    return []
