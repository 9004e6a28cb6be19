"""Second-order term of a factorization machine over the embeddings of a sample."""

import torch
from torch import nn

BATCH = 8192
FIELDS = 26
WIDTH = 32


class Model(nn.Module):
    def forward(self, embedded: torch.Tensor) -> torch.Tensor:
        return 0.5 * (embedded.sum(1).square() - embedded.square().sum(1)).sum(-1)


def get_inputs():
    return [torch.randn(BATCH, FIELDS, WIDTH)]


def get_init_inputs():
    return []
