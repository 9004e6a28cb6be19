"""Every element limited to the range from -1 to 1."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 512
dim = 5120


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return F.hardtanh(x, min_val=-1.0, max_val=1.0)


def get_inputs():
    return [torch.rand(batch_size, dim)]


def get_init_inputs():
    return []
