import torch
import torch.nn as nn


class Model(nn.Module):
    """Mixture-of-experts gate: top-k weights scattered into a dense gate."""

    def __init__(self, width, experts, k):
        super().__init__()
        self.gate, self.k = nn.Linear(width, experts), k

    def forward(self, x):
        logits = self.gate(x)
        top, which = logits.topk(self.k, dim=-1)
        return torch.zeros_like(logits).scatter_(-1, which, top.softmax(-1))


def get_inputs():
    return [torch.randn(64, 32)]


def get_init_inputs():
    return [32, 8, 2]
