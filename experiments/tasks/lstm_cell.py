"""One step of an LSTM: two products into four gates, then the new state."""

import torch
from torch import nn

BATCH = 256
INPUTS = 512
HIDDEN = 512


class Model(nn.Module):
    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.of_input = nn.Linear(inputs, 4 * hidden)
        self.of_state = nn.Linear(hidden, 4 * hidden, bias=False)

    def forward(self, x: torch.Tensor, state: torch.Tensor, cell: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        entry, forget, fresh, exit = (self.of_input(x) + self.of_state(state)).chunk(4, dim=-1)
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(entry) * torch.tanh(fresh)
        return torch.sigmoid(exit) * torch.tanh(cell), cell


def get_inputs():
    return [torch.randn(BATCH, INPUTS), torch.randn(BATCH, HIDDEN), torch.randn(BATCH, HIDDEN)]


def get_init_inputs():
    return [INPUTS, HIDDEN]
