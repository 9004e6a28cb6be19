"""What the outputs for one input set should be: the double-precision reference and how far it moves. Child only."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from evoforge.evaluation.dtypes import SHORT_FLOATS
from evoforge.evaluation.worker_model import WorkloadModel
from evoforge.evaluation.worker_picks import OtherOrder, Picks
from evoforge.evaluation.worker_precision import MadeOfIntegers, MatrixOperands, Noise, moved, rounded
from evoforge.evaluation.worker_tensors import add_change, finish_scale, max_error, own_error_rules, perturb

__all__ = ["Answers", "answers_of"]

_RUNS = 3  # with perturbed inputs
_SINGLE, _DOUBLE = 2.0**-24, 2.0**-53  # half an ulp of 1
_LEAST = 2.0**-126
_FEW = 0.01  # of the elements: near 0 what errs upstream is large
_DRAWN_ORDERS = 4  # of equal values, beside both ways round, of which one is not what torch names of any two of them
_NOISY, _LIKELY = 16, 6  # runs that show which integers are close calls; and those that show whether any is
_NOISE = 8  # times what one operation errs
_MOST = 1 << 20  # close calls of a task: where there are more, its integers say nothing and stay exact
_JUMP = 2.0**-10  # of the largest: more than that, and inputs' rounding makes a jump
_JUMP_SHARE = 2 / 16  # of a jump in `ref_error`, which is allowed 16 times over: two of them may meet
_ENLARGED = 2.0**12  # times their rounding by which doubles are changed: less is lost in the arithmetic that shows it
_SUMS = 2.0**-36  # of the largest: what another order of a double-precision sum may do
_ULP = {"bf16": 2.0**-7, "f16": 2.0**-10}  # of outputs that are held to one, over their magnitude: at most

_ORDER, _ROUNDING, _RANGE = "order", "rounding", "range"  # `worker.Reference` says what they mean


@dataclass(frozen=True)
class Answers:
    """The contents of `worker.Reference`."""

    y64: list[torch.Tensor]
    d: list[torch.Tensor]
    ref_error: list[float]
    also: torch.Tensor
    equal: list[tuple[int, int, torch.Tensor]]
    moot: str


def answers_of(workload: WorkloadModel, tensors: Sequence[torch.Tensor], seed: int, *, strict: bool = False) -> Answers:
    """What the outputs should be for these inputs; `seed` is of the perturbations, `strict` as `reference` has it."""
    return _Runs(workload, tensors, seed).answers(strict)


class _Runs:
    """The runs of forward() in double precision on one input set."""

    def __init__(self, workload: WorkloadModel, tensors: Sequence[torch.Tensor], seed: int) -> None:
        self._workload, self._tensors = workload, tensors
        self._specs = workload.signature.outputs
        self._floats = [at for at, spec in enumerate(self._specs) if spec.is_float]
        # Where only some outputs are doubles, theirs scale with what moves: to the first order it is u times as much.
        self._u = _DOUBLE if {self._specs[at].dtype for at in self._floats} == {"f64"} else _SINGLE
        self._rng = np.random.default_rng(seed)
        self._tf32 = workload.precision == "tf32"
        self._step = self._u * (_ENLARGED if self._u == _DOUBLE and not self._tf32 else 1)
        self._model = workload.converted(torch.float64)
        self._doubles = [one.to(torch.float64, copy=True) if one.is_floating_point() else one for one in tensors]

    def answers(self, strict: bool) -> Answers:
        workload, floats = self._workload, self._floats
        # What is returned as it came must not move with the inputs; of what is given, an index is exact.
        inputs = {one.untyped_storage().data_ptr() for one in self._doubles}
        weights = {one.untyped_storage().data_ptr() for one in (*self._model.parameters(), *self._model.buffers())}
        # Every maximum inside forward() would be kept; only those of indices matter.
        indices = len(floats) < len(self._specs)
        picks = Picks(extremes=indices, single=self._u == _SINGLE)
        raw = self._run(picks)
        ambiguous = picks.ambiguous
        picks.settle(raw, inputs | weights)
        y64 = [
            y.to(torch.float64 if spec.is_float else torch.int64, copy=y.untyped_storage().data_ptr() in inputs)
            .contiguous()
            for y, spec in zip(raw, self._specs, strict=True)
        ]  # fmt: skip
        del raw
        wide = {at: torch.float64 if self._specs[at].dtype == "f64" else torch.float32 for at in floats}
        roots, own = ([torch.zeros(y64[at].shape, dtype=wide[at]) for at in floats] for _ in range(2))
        whole_numbers = not any(one.is_floating_point() for one in self._tensors)
        moved_by_inputs = [whole_numbers] * len(floats)
        jumps = [0.0] * len(floats)
        for _ in range(_RUNS):
            self._perturb()
            again = Picks()
            with (
                MatrixOperands(moved(self._rng)) if self._tf32 else contextlib.nullcontext(),
                MadeOfIntegers(self._step, self._rng) if whole_numbers else contextlib.nullcontext(),
            ):
                other = self._run(again if indices else None)
            picks.add_change(again)
            moved_by_inputs = [
                known or not torch.equal(other[at], y64[at]) for known, at in zip(moved_by_inputs, floats, strict=True)
            ]
            for root, at in zip(roots, floats, strict=True):
                add_change(root, other[at], y64[at])
            if self._u == _SINGLE:
                jumps = [max(known, max_error(other[at], y64[at])) for known, at in zip(jumps, floats, strict=True)]
                self._add_own_error(own, self._doubles, self._run() if self._tf32 else other)
            del other
        if self._u == _SINGLE:
            self._add_own_error(own, self._tensors, y64)
            self._add_likely_error(own, roots, y64)
        doubles = {at: error.zero_() for at, error in zip(floats, own, strict=True) if self._specs[at].dtype == "f64"}
        moot = ""
        if any(
            at in doubles and _largest(root) > _JUMP * _largest(y64[at]) for root, at in zip(roots, floats, strict=True)
        ):
            moot = _ROUNDING  # what a change makes that is so much larger than theirs says nothing of theirs
        largest_of_doubles = self._add_errors_of_doubles(doubles, y64)
        for root, error, at in zip(roots, own, floats, strict=True):
            u = _DOUBLE if at in doubles else _SINGLE
            if at in doubles:
                root.mul_(u / self._step)
            finish_scale(root, error, y64[at], _RUNS, u)
        with MatrixOperands(rounded) if self._tf32 else contextlib.nullcontext():
            single = workload.outputs(self._tensors, "fp32")
        errors = [
            max(max_error(result, y), largest_of_doubles.get(at, 0.0)) if spec.is_float else 0.0
            for at, (result, y, spec) in enumerate(zip(single, y64, self._specs, strict=True))
        ]
        for at, jump in zip(floats, jumps, strict=True):
            if jump > _JUMP * _largest(y64[at]):  # as of codes between which rounding decides
                errors[at] = max(errors[at], _JUMP_SHARE * jump)
        if picks.decides:
            self._allow_for_decisions(y64, roots, errors)
        still = frozenset(at for known, at in zip(moved_by_inputs, floats, strict=True) if strict or not known)
        if still and not all(self._stands(y64, roots, still, alike) for alike in (True, False)):
            moot = _ROUNDING
        if picks.undefined:
            moot = _RANGE
        if picks.unsorted or (ambiguous and not all(self._ordered(y64, picks.free, order) for order in self._orders())):
            moot = _ORDER
        also = picks.alternatives(runs=_RUNS, factor=workload.factor, u=self._u, step=self._step)
        if picks.crowded:
            moot = moot or _ROUNDING
        close = self._close_calls(y64, {at for at, spec in enumerate(self._specs) if not spec.is_float} - picks.known)
        return Answers(y64, roots, errors, torch.cat([also, close]), picks.equal(), moot)

    def _close_calls(self, y64: Sequence[torch.Tensor], outputs: Set[int]) -> torch.Tensor:
        """(output, element, integer), int64, shape (k, 3): what a rounding on the way may make of integers and bools.

        Of what forward() computed: an input that is compared or rounded as it came gives the same in any precision.
        """
        found = torch.zeros((0, 3), dtype=torch.int64)
        floating = any(one.is_floating_point() for one in (*self._tensors, *self._model.parameters()))
        for run in range(_NOISY if outputs and floating else 0):
            if run == _LIKELY and not len(found):
                break
            other = self._again(Noise(_NOISE * self._u, self._rng, alike=True, cancelled=True))
            for at in outputs:
                got = other[at].reshape(-1)
                (elements,) = torch.nonzero(got != y64[at].reshape(-1), as_tuple=True)
                fresh = torch.stack((torch.full_like(elements, at), elements, got[elements]), 1)
                found = _distinct(torch.cat([found, fresh])) if len(fresh) <= _MOST else fresh
                if len(found) > _MOST:
                    return found[:0]
        return found

    def _add_errors_of_doubles(self, own: Mapping[int, torch.Tensor], y64: Sequence[torch.Tensor]) -> dict[int, float]:
        """Adds what double precision errs by itself to the `own` of outputs that are doubles; the most of it of each.

        The reference is no more exact than they are, so every operator's rounding is made larger, and what comes of it
        is divided again.
        """
        largest = dict.fromkeys(own, 0.0)
        for _ in range(_RUNS if own else 0):
            other = self._again(Noise(_ENLARGED * _DOUBLE, self._rng, alike=False, cancelled=True))
            for at, error in own.items():
                add_change(error, other[at], y64[at])
                largest[at] = max(largest[at], max_error(other[at], y64[at]) / _ENLARGED)
        for error in own.values():
            error.div_(_ENLARGED)
        return largest

    def _add_likely_error(
        self, own: Sequence[torch.Tensor], roots: Sequence[torch.Tensor], y64: Sequence[torch.Tensor]
    ) -> None:
        """Raises `own`, where that rules the scale of an output, to what another program errs at the same element.

        What is left of numbers that cancel (two log-sum-exps of like rows) may happen to be exact here and a rounding
        off there: what noise moves an element by, and at most what the module errs at its worst one.
        """
        ruled = [
            (error, at) for error, root, at in zip(own, roots, self._floats, strict=True)
            if own_error_rules(root, error, y64[at], _RUNS, self._u)
        ]  # fmt: skip
        moved = {at: torch.zeros_like(error) for error, at in ruled}
        for run in range(_RUNS if ruled else 0):
            other = self._again(Noise(self._u, self._rng, alike=run % 2 == 0, varied=True))
            for most, at in zip(moved.values(), moved, strict=True):
                torch.maximum(most, (other[at] - y64[at]).abs_().nan_to_num_(0.0, 0.0, 0.0).to(most.dtype), out=most)
        for error, at in ruled:
            most = moved[at].mul_(_RUNS**0.5).clamp_(max=_largest(error))
            torch.maximum(error, most, out=error)

    def _allow_for_decisions(
        self, y64: Sequence[torch.Tensor], roots: Sequence[torch.Tensor], errors: list[float]
    ) -> None:
        """Adds to the scale of elements what a value that was rounded or chosen on the way, and could as well have gone
        to the other side in single precision, makes of them: where a code is another, a whole row can be.

        What stays within its tolerance under so much noise has made no jump that matters.
        """
        far: dict[int, torch.Tensor] = {}
        for run in range(_NOISY):
            if run == _LIKELY and not far:
                return
            other = self._again(Noise(_NOISE * self._u, self._rng, alike=True, cancelled=True))
            for root, at in zip(roots, self._floats, strict=True):
                change = (other[at] - y64[at]).abs_().nan_to_num_(0.0, 0.0, 0.0)
                change[change <= self._within(at, y64[at], root)] = 0.0
                if change.any():
                    far[at] = torch.maximum(far[at], change) if at in far else change
        for root, at in zip(roots, self._floats, strict=True):
            if at in far:
                largest = float(far[at].max())
                root.add_(far[at].div_(self._workload.factor))
                errors[at] = max(errors[at], _JUMP_SHARE * largest)

    def _within(self, at: int, y: torch.Tensor, root: torch.Tensor) -> torch.Tensor:
        """The tolerance of the elements of output `at`."""
        return self._workload.factor * root.double() + _LEAST + _ULP.get(self._specs[at].dtype, 0.0) * y.abs()

    def _run(self, within: AbstractContextManager[Any] | None = None) -> list[torch.Tensor]:
        return self._workload.run_in_double(self._model, self._doubles, within)

    def _perturb(self) -> None:
        for double, one in zip(self._doubles, self._tensors, strict=True):
            if one.is_floating_point():
                perturb(double, one, self._step, self._rng)

    def _stands(
        self, y64: Sequence[torch.Tensor], roots: Sequence[torch.Tensor], still: frozenset[int], alike: bool
    ) -> bool:
        """Whether the outputs `still` stay within their tolerance, but for few elements, where every operator errs."""
        other, scales = self._again(Noise(self._u, self._rng, alike=alike)), iter(roots)
        for at, (got, y, spec) in enumerate(zip(other, y64, self._specs, strict=True)):
            if spec.is_float:
                tolerance = self._within(at, y, next(scales))
                if at in still and _beyond(got, y, tolerance) > _FEW:
                    return False
        return True

    def _orders(self) -> list[Callable[[int], torch.Tensor]]:
        generator = torch.Generator().manual_seed(int(self._rng.integers(2**31)))
        drawn = partial(torch.randperm, generator=generator)
        return [torch.arange, lambda count: torch.arange(count).flip(0), *[drawn] * _DRAWN_ORDERS]

    def _ordered(self, y64: Sequence[torch.Tensor], free: frozenset[int], order: Callable[[int], torch.Tensor]) -> bool:
        """Whether the outputs stay as they are where equal values change places; those that are `free` need not.

        How far perturbed inputs move them says nothing here: that, too, makes equal values change places.
        """
        other = self._again(OtherOrder(order))
        for at, (got, y, spec) in enumerate(zip(other, y64, self._specs, strict=True)):
            tolerance: torch.Tensor | float = 0
            if spec.is_float:
                tolerance = (self._workload.factor * self._u * y.abs()).clamp(min=_SUMS * _largest(y))
            if at not in free and _beyond(got, y, tolerance) > 0:
                return False
        return True

    def _again(self, within: AbstractContextManager[Any]) -> list[torch.Tensor]:
        for double, one in zip(self._doubles, self._tensors, strict=True):
            if one.is_floating_point():  # others are the inputs themselves
                double.copy_(one)
        with within:
            other = self._run()
        return [one.to(torch.float64 if spec.is_float else torch.int64)
                for one, spec in zip(other, self._specs, strict=True)]  # fmt: skip

    def _add_own_error(
        self, roots: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]
    ) -> None:
        """Adds what single precision errs on `inputs`: an operator can be worse than its inputs' rounding.

        What forward() itself makes 16-bit has rounded already, and that is allowed for elsewhere: only what is beyond
        half an ulp was lost before it.
        """
        single, waiting = self._workload.run_as(torch.float32, inputs), iter(roots)
        for spec, got, y in zip(self._specs, single, exact, strict=True):
            if spec.is_float:
                root, y = next(waiting), y.contiguous()
                if got.dtype == torch.float32:
                    add_change(root, got.contiguous(), y)
                elif spec.dtype in SHORT_FLOATS:
                    add_change(root, y + ((got - y).abs() - _half_ulp(y, spec.dtype)).clamp(min=0), y)


def _largest(y: torch.Tensor) -> float:
    return float(y.abs().nan_to_num(0.0, 0.0, 0.0).max()) if y.numel() else 0.0


def _distinct(rows: torch.Tensor) -> torch.Tensor:
    """Each row once, in order: ``unique(dim=0)`` in a fifth of the time."""
    for column in reversed(range(rows.shape[1])):
        rows = rows[rows[:, column].argsort(stable=True)]
    again = (rows[1:] == rows[:-1]).all(1)
    return rows[torch.cat([torch.ones(min(len(rows), 1), dtype=torch.bool), ~again])]


def _half_ulp(y: torch.Tensor, dtype: str) -> torch.Tensor:
    """Of `y` as that 16-bit type holds it."""
    digits, least = SHORT_FLOATS[dtype]
    return torch.ldexp(torch.ones_like(y), (torch.frexp(y).exponent - 1).clamp(min=least) - digits - 1)


def _beyond(got: torch.Tensor, y: torch.Tensor, tolerance: torch.Tensor | float) -> float:
    """The share of the elements that are not within `tolerance`."""
    near = ((got - y).abs() <= tolerance) | (got == y) | (got.isnan() & y.isnan())
    return 1.0 - float(near.double().mean())
