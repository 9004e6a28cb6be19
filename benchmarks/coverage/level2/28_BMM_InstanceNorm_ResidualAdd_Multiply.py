"""Batched product, instance norm of its rows, residual and product with a second input."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 16
rows = 24
in_features = 256
out_features = 320


class Model(nn.Module):
    def __init__(self, in_features, out_features, batch_size, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(batch_size, in_features, out_features) / 16)
        self.eps = eps

    def forward(self, x, y):
        x = torch.bmm(x, self.weight)
        x = F.instance_norm(x, eps=self.eps)
        x = x + y
        return x * y


def get_inputs():
    return [torch.rand(batch_size, rows, in_features), torch.rand(batch_size, rows, out_features)]


def get_init_inputs():
    return [in_features, out_features, batch_size]
