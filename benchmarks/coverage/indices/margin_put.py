import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """CosFace margin: a margin taken off the target's logit."""

    def __init__(self, classes, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, width))

    def forward(self, x, label):
        logits = F.linear(F.normalize(x), F.normalize(self.weight)).clone()
        rows = torch.arange(x.shape[0])
        logits[rows, label] = logits[rows, label] - 0.35
        return logits * 30.0


def get_inputs():
    return [torch.randn(24, 16), torch.randint(0, 10, (24,))]


def get_init_inputs():
    return [10, 16]
