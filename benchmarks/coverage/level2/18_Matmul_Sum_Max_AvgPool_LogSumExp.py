"""Linear layer in heads; sum, maximum and log-sum-exp over what is left."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 128
in_features = 512
heads = 12
head_features = 48


class Model(nn.Module):
    def __init__(self, in_features, heads, head_features):
        super().__init__()
        self.linear = nn.Linear(in_features, heads * head_features)
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x).view(x.shape[0], self.heads, -1, 4)
        x = torch.sum(x, dim=3)
        x = torch.max(x, dim=2)[0]
        x = F.avg_pool1d(x.unsqueeze(1), 2).squeeze(1)
        return torch.logsumexp(x, dim=1, keepdim=True)


def get_inputs():
    return [torch.rand(batch_size, in_features)]


def get_init_inputs():
    return [in_features, heads, head_features]
