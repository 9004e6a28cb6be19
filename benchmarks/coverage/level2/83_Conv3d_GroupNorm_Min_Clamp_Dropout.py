"""Convolution of volumes, group norm, minimum, clamp, dropout as at inference."""

import torch
import torch.nn as nn

batch_size = 4
in_channels = 3
out_channels = 16
depth, height, width = 12, 22, 22
kernel_size = 3
groups = 8
min_value = 0.7
max_value = 1.5
dropout_p = 0.2


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, groups, min_value, max_value, dropout_p):
        super().__init__()
        self.conv = nn.Conv3d(in_channels, out_channels, kernel_size)
        self.norm = nn.GroupNorm(groups, out_channels)
        self.dropout = nn.Dropout(dropout_p).eval()
        self.min_value = min_value
        self.max_value = max_value

    def forward(self, x):
        x = self.conv(x)
        x = self.norm(x)
        x = torch.minimum(x, torch.tensor(self.min_value))
        x = torch.clamp(x, min=-self.max_value, max=self.max_value)
        return self.dropout(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, depth, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, groups, min_value, max_value, dropout_p]
