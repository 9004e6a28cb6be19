"""Triplet loss with a margin."""

import torch
import torch.nn as nn

batch_size = 256
dim = 4096
margin = 1.0


class Model(nn.Module):
    def __init__(self, margin=1.0):
        super().__init__()
        self.loss_fn = nn.TripletMarginLoss(margin=margin)

    def forward(self, anchor, positive, negative):
        return self.loss_fn(anchor, positive, negative)


def get_inputs():
    return [torch.rand(batch_size, dim), torch.rand(batch_size, dim), torch.rand(batch_size, dim)]


def get_init_inputs():
    return [margin]
