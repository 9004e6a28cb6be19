"""Linear layer, clamp from above, batch norm without statistics, factor per feature."""

import torch
import torch.nn as nn

batch_size = 256
in_features = 400
out_features = 384
ceiling = 0.6


class Model(nn.Module):
    def __init__(self, in_features, out_features, ceiling):
        super().__init__()
        self.fc = nn.Linear(in_features, out_features, bias=False)
        self.norm = nn.BatchNorm1d(out_features, track_running_stats=False)
        self.gain = nn.Parameter(torch.rand(out_features))
        self.ceiling = ceiling

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.fc(x).clamp(max=self.ceiling)
        return self.norm(x) * self.gain


def get_inputs():
    return [torch.rand(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features, ceiling]
