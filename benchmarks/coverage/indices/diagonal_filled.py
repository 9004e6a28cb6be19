import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """NT-Xent: a similarity matrix without its diagonal."""

    def forward(self, a, b):
        z = F.normalize(torch.cat([a, b]), dim=-1)
        sim = (z @ z.t()) / 0.5
        sim = sim.fill_diagonal_(-1e9)
        return sim.log_softmax(-1)


def get_inputs():
    return [torch.randn(16, 12), torch.randn(16, 12)]


def get_init_inputs():
    return []
