"""Rows without what lies outside of their own quantiles."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        low, high = torch.quantile(x, 0.05, dim=-1, keepdim=True), torch.quantile(x, 0.95, dim=-1, keepdim=True)
        return torch.minimum(torch.maximum(x, low), high)


def get_inputs():
    return [torch.randn(48, 200)]


def get_init_inputs():
    return []
