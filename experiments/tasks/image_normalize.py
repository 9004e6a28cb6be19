"""Images from bytes, channels last, to normalised floats, channels first."""

import torch
from torch import nn

BATCH = 32
SIDE = 224


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1))
        self.register_buffer("deviation", torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return (images.permute(0, 3, 1, 2).contiguous().float() / 255 - self.mean) / self.deviation


def get_inputs():
    return [torch.randint(0, 256, (BATCH, SIDE, SIDE, 3), dtype=torch.uint8)]


def get_init_inputs():
    return []
