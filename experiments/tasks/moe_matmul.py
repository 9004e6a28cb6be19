"""The experts of a mixture: tokens gathered by expert, a product per group, SiLU, the gates."""

import torch
from torch import nn

TOKENS = 512
EXPERTS = 8
CAPACITY = 128
INPUTS = 512
OUTPUTS = 1024


class Model(nn.Module):
    def __init__(self, experts: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(experts, inputs, outputs) / inputs**0.5)

    def forward(self, x: torch.Tensor, chosen: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        return nn.functional.silu(torch.bmm(x[chosen], self.weight)) * gate.unsqueeze(-1)


def get_inputs():
    chosen = torch.randint(0, TOKENS, (EXPERTS, CAPACITY))
    return [torch.randn(TOKENS, INPUTS), chosen, torch.rand(EXPERTS, CAPACITY)]


def get_init_inputs():
    return [EXPERTS, INPUTS, OUTPUTS]
