"""Values of the places whose scores are the greatest."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, scores):
        at = scores.topk(4, -1).indices
        return x.gather(-1, at)


def get_inputs():
    return [torch.randn(40, 64), torch.randn(40, 64)]


def get_init_inputs():
    return []
