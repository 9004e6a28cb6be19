"""Where an index could as well be another one: what was chosen among. Child only."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

__all__ = ["Picks"]

_MOST = 1 << 20
"""Pairs for one output; where more would serve, the index says nothing and stays exact."""
_LONGEST = 1 << 28  # comparisons that finding them may take

_FIRST = ("argmax", "argmin", "max", "min")
_ANY = ("topk", "sort", "argsort", "kthvalue", "median", "nanmedian")
"""Whose index is that of the first of equal values, and where torch does not say which of them it is."""
_DIM_AT = {"topk": 2, "kthvalue": 2}  # among the arguments; else 1


@dataclass
class _Pick:
    """`chosen` has `k` indices into `dim` for every row of `values`: 1 of an extreme, more of a sort."""

    chosen: torch.Tensor
    values: torch.Tensor
    dim: int | None
    loose: bool  # any of equal values serves
    tied: bool  # and there are some among those chosen
    versions: tuple[int, int]  # of both tensors: what is changed in place afterwards says nothing any more
    used: bool = False  # by what computes on
    given: bool = False  # of an input as it came
    change2: torch.Tensor | None = None  # sum of squared changes of `values`

    @property
    def inner(self) -> int:
        """Elements of one step along `dim`."""
        if self.dim is None or not self.values.dim():
            return 1
        return math.prod(self.values.shape[self.dim % self.values.dim() + 1 :])

    def rows(self, tensor: torch.Tensor) -> torch.Tensor:
        """(rows, n) of a tensor like `values`."""
        if self.dim is None or not tensor.dim():
            return tensor.reshape(1, -1)
        return tensor.movedim(self.dim, -1).reshape(-1, tensor.shape[self.dim])

    def places(self) -> torch.Tensor:
        """(rows, k): the element of `chosen` that has the j-th index of a row."""
        count = self.chosen.numel()
        inner = self.inner
        outer = self.values.numel() // max(self.rows(self.values).shape[1] * inner, 1)
        return torch.arange(count).reshape(outer, -1, inner).movedim(1, 2).reshape(outer * inner, -1)


class Picks(TorchFunctionMode):  # type: ignore[misc]
    """While active, notes what took an index along a dimension: argmax, argmin, max, min, topk, sort, argsort, kthvalue
    and median, with what it was taken of.

    An index among *computed* floating values is right if the value there is within the tolerance of
    the one that double precision chooses (docs/tolerance.md): in single precision two values that lie close can
    change places. Of values that are inputs as they came the index is exact. Of equal values the first
    counts for extremes and stable sorts; of what else sorts, torch names any.

    Args:
        extremes: argmax, argmin, max and min are noted, too.
    """

    def __init__(self, *, extremes: bool = True) -> None:
        super().__init__()
        self._names = _FIRST + _ANY if extremes else _ANY
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
        given = {id(leaf) for leaf in pytree.tree_leaves((args, named))} if self._made else set()
        for pick in self._made:
            pick.used = pick.used or id(pick.chosen) in given
        result = function(*args, **named)
        name = getattr(function, "__name__", "")
        if name in self._names:
            chosen = result if name.startswith("arg") else getattr(result, "indices", None)
            values = args[0] if args else named.get("input")
            at = _DIM_AT.get(name, 1)
            dim = args[at] if len(args) > at else named.get("dim", None if name in _FIRST else -1)
            loose = name in _ANY and not named.get("stable")
            if not (
                isinstance(chosen, torch.Tensor) and isinstance(values, torch.Tensor) and isinstance(dim, int | None)
            ):
                return result
            if loose or values.is_floating_point():
                pick = _Pick(chosen, values, dim, loose, False, (chosen._version, values._version))
                pick.tied = loose and _tied(pick)
                self._made.append(pick)
        return result

    @property
    def ambiguous(self) -> bool:
        """Whether an index of one of equal values was computed with where torch names any; asked before `settle`."""
        return any(pick.tied and pick.used for pick in self._made)

    def settle(self, outputs: Sequence[torch.Tensor], inputs: Set[int]) -> None:
        """Forgets what is no output, or an exact index into storages at these addresses: forward's inputs."""
        for place, pick in enumerate(self._made):
            pick.given = pick.values.untyped_storage().data_ptr() in inputs
            for at, output in enumerate(outputs):
                same = pick.chosen.data_ptr() == output.data_ptr() and pick.chosen.numel() == output.numel()
                kept = pick.versions == (pick.chosen._version, pick.values._version)
                if same and kept and pick.chosen.is_contiguous() and (pick.loose or not pick.given):
                    pick.values = pick.values.clone() if pick.given else pick.values  # inputs are perturbed in place
                    self._outputs[place] = (at, pick)
        self._made.clear()

    def equal(self) -> list[tuple[int, int, torch.Tensor]]:
        """(output, elements of one step along the dimension, values in rows) where any of equal values serves."""
        return [
            (at, pick.inner, pick.rows(pick.values.double()).contiguous())
            for at, pick in self._outputs.values()
            if pick.loose and pick.values.numel()
        ]

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
            if pick.change2 is not None and not pick.given and pick.values.is_floating_point():
                found = _close(pick, pick.change2, runs, factor, u)
                rows += [torch.nn.functional.pad(found, (1, 0), value=at)] if len(found) <= _MOST else []
        return torch.cat(rows) if rows else torch.zeros((0, 3), dtype=torch.int64)


def _tied(pick: _Pick) -> bool:
    """Whether a chosen value stands in its row more than once."""
    if not pick.values.numel():
        return False
    values = pick.rows(pick.values.double())
    chosen = values.gather(1, pick.chosen.reshape(-1)[pick.places()])
    ordered = values.sort(-1).values.contiguous()
    first, last = (torch.searchsorted(ordered, chosen.contiguous(), right=right) for right in (False, True))
    return bool((last - first > 1).any())


def _close(pick: _Pick, change2: torch.Tensor, runs: int, factor: float, u: float) -> torch.Tensor:
    """(element, index) of the values within the tolerance of the chosen one, but not equal to it."""
    values, change2, places = pick.rows(pick.values.double()), pick.rows(change2), pick.places()
    found = []
    for at in places.T if values.numel() * places.shape[1] <= _LONGEST else places.T[:0]:
        chosen = pick.chosen.reshape(-1)[at].unsqueeze(1)
        best, change = values.gather(1, chosen), (change2.gather(1, chosen) / runs).sqrt_()
        tolerance = factor * (change + u * best.abs()) + 2.0**-126
        row, index = torch.nonzero(((values - best).abs() <= tolerance) & (values != best)).unbind(1)
        found.append(torch.stack((at[row], index), 1))
    return torch.cat(found) if found else torch.zeros((0, 2), dtype=torch.int64)
