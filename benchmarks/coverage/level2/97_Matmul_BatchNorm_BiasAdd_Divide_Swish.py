"""Linear layer, batch norm, one learned bias, divisor, swish."""

import torch
import torch.nn as nn

batch_size = 128
in_features = 700
out_features = 512
bias_shape = (1,)
divide_value = 1.5


class Model(nn.Module):
    def __init__(self, in_features, out_features, bias_shape=(1,), divide_value=1.0):
        super().__init__()
        self.matmul = nn.Linear(in_features, out_features)
        self.bn = nn.BatchNorm1d(out_features)
        self.bias = nn.Parameter(torch.randn(bias_shape))
        self.divide_value = divide_value

    def forward(self, x):
        x = self.matmul(x)
        x = self.bn(x)
        x = x + self.bias
        x = x / self.divide_value
        return x * torch.sigmoid(x)


def get_inputs():
    return [torch.rand(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features, bias_shape, divide_value]
