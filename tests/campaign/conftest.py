"""One small task, judged for real. Its campaigns share a folder, so that torch compiles it once."""

from __future__ import annotations

from pathlib import Path

import pytest

TASK = '''
import torch

M = 96
N = 640
EPS = 1e-6


class Model(torch.nn.Module):
    """Row-wise scale by the inverse root mean square, after a residual add."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(N))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = x + residual
        return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + EPS) * self.weight, h


def get_inputs():
    return [torch.randn(M, N), torch.randn(M, N)]


def get_init_inputs():
    return []
'''
NO_COMPILE = """

def refuse(*_, **__):
    raise RuntimeError("eager alone will do")


torch.compile = refuse
"""


@pytest.fixture(scope="session")
def small_task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tasks") / "small.py"
    path.write_text(TASK)
    return path


@pytest.fixture(scope="session")
def eager_task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small task without torch.compile, which takes seconds at every size."""
    path = tmp_path_factory.mktemp("tasks") / "small.py"
    path.write_text(TASK + NO_COMPILE)
    return path
