"""ELU with its alpha given at construction."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 320
dim = 4096
alpha = 1.3


class Model(nn.Module):
    def __init__(self, alpha=1.0):
        super().__init__()
        self.alpha = alpha

    def forward(self, x):
        return F.elu(x, alpha=self.alpha)


def get_inputs():
    return [torch.randn(batch_size, dim)]


def get_init_inputs():
    return [alpha]
