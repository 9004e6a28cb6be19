import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Overlap-add with its window normalisation (an inverse STFT's tail)."""

    def __init__(self, size, hop):
        super().__init__()
        self.hop = hop
        self.register_buffer("window", torch.hann_window(size).view(1, 1, -1) + 0.1)

    def forward(self, frames):
        signal = F.conv_transpose1d(frames, self.window, stride=self.hop)
        ones = torch.ones(1, 1, frames.shape[-1])
        return signal / F.conv_transpose1d(ones, self.window**2, stride=self.hop)


def get_inputs():
    return [torch.randn(4, 1, 33)]


def get_init_inputs():
    return [16, 4]
