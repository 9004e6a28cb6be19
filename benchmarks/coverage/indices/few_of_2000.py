import torch
import torch.nn as nn


class Model(nn.Module):
    """The eight largest of 2000: a few maxima one after the other would do."""

    def forward(self, x):
        values, at = torch.topk(x, 8, dim=-1)
        return values.softmax(-1), at


def get_inputs():
    return [torch.randn(32, 2000)]


def get_init_inputs():
    return []
