"""Transposed convolution of volumes, layer norm over the width, GELU, a factor."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 2
in_channels = 8
out_channels = 32
D, H, W = 6, 10, 16
kernel_size = 4
stride = 2
padding = 1
eps = 1e-5
scaling_factor = 1.5


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, width, eps, scaling_factor):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose3d(
            in_channels, out_channels, kernel_size, stride=stride, padding=padding, bias=True
        )
        self.layer_norm = nn.LayerNorm(width, eps=eps)
        self.scaling_factor = scaling_factor

    def forward(self, x):
        x = self.conv_transpose(x)
        x = self.layer_norm(x)
        x = F.gelu(x)
        return x * self.scaling_factor


def get_inputs():
    return [torch.randn(batch_size, in_channels, D, H, W)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, stride, padding, 2 * W, eps, scaling_factor]
