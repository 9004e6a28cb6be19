"""Where an index could as well be another one: what arg-reductions chose among. Child only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

__all__ = ["Picks"]

_MOST = 1 << 20
"""Pairs for one output; where more would serve, the index says nothing and stays exact."""


@dataclass
class _Pick:
    chosen: torch.Tensor
    values: torch.Tensor
    dim: int | None
    change2: torch.Tensor | None = None  # sum of squared changes of `values`


class Picks(TorchFunctionMode):  # type: ignore[misc]
    """While active, notes every argmax, argmin, max and min over a dimension, with what it was taken of.

    An index of the greatest of *computed* floating values is right if the value there is within the tolerance of
    the greatest one (docs/tolerance.md): in single precision two values that lie close can
    change places. Of values that are inputs as they came the index is exact, as it is among equal
    values, of which the first counts.
    """

    def __init__(self) -> None:
        super().__init__()
        self._made: list[_Pick] = []
        self._outputs: dict[int, tuple[int, _Pick]] = {}  # place among the picks → (output, pick)

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        result = function(*args, **named)
        name = getattr(function, "__name__", "")
        if name in ("argmax", "argmin", "max", "min"):
            chosen = result if name.startswith("arg") else getattr(result, "indices", None)
            values = args[0] if args else named.get("input")
            dim = args[1] if len(args) > 1 else named.get("dim")
            if isinstance(chosen, torch.Tensor) and isinstance(values, torch.Tensor) and isinstance(dim, int | None):
                self._made += [_Pick(chosen, values, dim)] if values.is_floating_point() else []
        return result

    def settle(self, outputs: Sequence[torch.Tensor], inputs: Set[int]) -> None:
        """Forgets what is no output, or was taken of storages at these addresses: forward's inputs."""
        for place, pick in enumerate(self._made):
            for at, output in enumerate(outputs):
                same = pick.chosen.data_ptr() == output.data_ptr() and pick.chosen.numel() == output.numel()
                if same and pick.chosen.is_contiguous() and pick.values.untyped_storage().data_ptr() not in inputs:
                    self._outputs[place] = (at, pick)
        self._made.clear()

    def add_change(self, other: Picks) -> None:
        """Takes note of what the same picks were made of in a perturbed run."""
        for place, (_, pick) in self._outputs.items():
            moved = other._made[place].values if place < len(other._made) else pick.values[:0]
            if pick.values.shape == moved.shape:
                change2 = (moved.double() - pick.values.double()).square_()
                pick.change2 = change2 if pick.change2 is None else pick.change2.add_(change2)

    def alternatives(self, *, runs: int, factor: float, u: float) -> torch.Tensor:
        """(output, element, index) of all that would serve as well, int64, shape (k, 3).

        Args:
            runs: how many perturbed runs were noted.
            factor, u: of the tolerance, factor · (rms change + u·|value|).
        """
        rows = []
        for at, pick in self._outputs.values():
            if pick.change2 is not None:
                found = _close(pick, pick.change2, runs, factor, u)
                rows += [torch.nn.functional.pad(found, (1, 0), value=at)] if len(found) <= _MOST else []
        return torch.cat(rows) if rows else torch.zeros((0, 3), dtype=torch.int64)


def _close(pick: _Pick, change2: torch.Tensor, runs: int, factor: float, u: float) -> torch.Tensor:
    """(element, index) of the values within the tolerance of the chosen one, but not equal to it."""
    values, change2 = (
        one.reshape(1, -1) if pick.dim is None else one.movedim(pick.dim, -1).reshape(-1, one.shape[pick.dim])
        for one in (pick.values.double(), change2)
    )
    chosen = pick.chosen.reshape(-1, 1)
    best, change = values.gather(1, chosen), (change2.gather(1, chosen) / runs).sqrt_()
    tolerance = factor * (change + u * best.abs()) + 2.0**-126
    return torch.nonzero(((values - best).abs() <= tolerance) & (values != best))
