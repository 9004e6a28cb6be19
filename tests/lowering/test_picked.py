"""Which sums have one term, and that what comes of it stays what it is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from evoforge.lowering import rewrites
from tests.lowering.test_cpp import Module, check_all, rand, rewritten, unfolded

CASES: dict[str, tuple[nn.Module, list[torch.Tensor]]] = {
    "rows": (Module(lambda d, x: torch.diag(d) @ x), [rand(21), rand(21, 33)]),
    "columns": (Module(lambda d, x: x @ torch.diag(d + 1)), [rand(33), rand(21, 33)]),
    "batches": (Module(lambda d, x: torch.diag_embed(d) @ x), [rand(3, 21), rand(3, 21, 33)]),
    "unit_matrix": (Module(lambda x, y: (x * torch.eye(21)) @ y), [rand(21, 21), rand(21, 33)]),
    "nothing_but_ones": (Module(lambda y: torch.eye(21).to(y.dtype) @ y), [rand(21, 33)]),
    "chosen": (
        Module(lambda x, y: torch.where(torch.eye(21, dtype=torch.bool), x, 0.0) @ y), [rand(21, 21), rand(21, 33)],
    ),
    "another_sum_is_left": (
        Module(lambda x, y: torch.einsum("ij,jkl,l->ik", x * torch.eye(21), y, x[0])), [rand(21, 21), rand(21, 33, 21)],
    ),
    "both_sides": (Module(lambda d, x: torch.diag(d) @ x @ torch.diag(d)), [rand(21), rand(21, 21)]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_summed_that_has_one_term(case: str) -> None:
    graph = unfolded(*CASES[case])
    made = rewrites.apply(graph, ["picked"])
    sums = [stage for stage in made.stages if stage.kind == "reduce"]
    assert len(sums) == (case == "another_sum_is_left")


def test_kernels_compute_what_the_module_computes(tmp_path: Path) -> None:
    check_all([(k, *CASES[case]) for case in CASES for k in rewritten(case, *CASES[case], "picked")], tmp_path)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda x, y: torch.tril(x) @ y, [rand(21, 21), rand(21, 33)]),  # several terms
        (lambda d, y: torch.diag(d, 1) @ y, [rand(20), rand(21, 33)]),  # not always one
        (lambda x, y: (x + torch.eye(21)) @ y, [rand(21, 21), rand(21, 33)]),
        (lambda x, y: torch.where(torch.eye(21, dtype=torch.bool), x, 1.0) @ y, [rand(21, 21), rand(21, 33)]),
        (lambda x, y: (x * torch.eye(21)[:, :21].flip(0).cumsum(0)) @ y, [rand(21, 21), rand(21, 33)]),
    ],
)
def test_other_sums_stay_as_they_are(function: object, inputs: list[torch.Tensor]) -> None:
    graph = unfolded(Module(function), inputs)
    assert rewrites.apply(graph, ["picked"]) == graph
