"""Transposed convolution of volumes, learned offset, layer norm over the width, pooling and GELU."""

import torch
import torch.nn as nn

batch_size = 2
in_channels = 8
out_channels = 16
depth, height, width = 8, 12, 16
kernel_size = (3, 3, 3)
stride = (2, 2, 2)
sum_weight = 1.0
norm_shape = (2 * width,)


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, sum_weight, norm_shape):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose3d(
            in_channels, out_channels, kernel_size, stride, padding=1, output_padding=1
        )
        self.sum_weight = nn.Parameter(torch.tensor(sum_weight))
        self.norm = nn.LayerNorm(norm_shape)
        self.avg_pool = nn.AvgPool3d(kernel_size=(2, 2, 2))
        self.gelu = nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv_transpose(x)
        x = x + self.sum_weight
        x = self.norm(x)
        x = self.avg_pool(x)
        return self.gelu(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, depth, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, stride, sum_weight, norm_shape]
