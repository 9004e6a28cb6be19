"""Matrix products under a task's precision policy: what their operands may lose; all else in double. Child only.

A policy looser than ``ieee`` loosens nothing but matrix products and convolutions: the sensitivity of
a ``tf32`` task is that to small changes of their operands, of all other operators that to its inputs.
``split`` (three products of 8-bit halves) needs no room of its own: its error is below that of a
running sum in single precision (docs/tolerance.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from evoforge.evaluation.worker_tensors import is_floating, perturb

__all__ = ["MadeOfIntegers", "MatrixOperands", "NamedAs", "Noise", "allow_precision", "moved", "rounded"]

_STEP = 2.0**-17
"""512 of it are 16 roundings to TF32's 11 bits, and 2 to the 8 bits of bfloat16."""

_OPERANDS: dict[Any, tuple[int, ...]] = {
    torch.ops.aten.mm: (0, 1),
    torch.ops.aten.mv: (0, 1),
    torch.ops.aten.dot: (0, 1),
    torch.ops.aten.bmm: (0, 1),
    torch.ops.aten.addmm: (1, 2),
    torch.ops.aten.addmv: (1, 2),
    torch.ops.aten.baddbmm: (1, 2),
    torch.ops.aten.convolution: (0, 1),
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: (0, 1, 2),
}


_EXACT = frozenset({
    "abs", "amax", "amin", "arange", "cat", "ceil", "clamp", "clamp_max", "clamp_min", "clone", "constant_pad_nd",
    "copy", "copysign", "cummax", "cummin", "diag_embed", "embedding", "empty", "empty_like", "fill", "flip", "floor",
    "frac", "full", "full_like", "gather", "hardtanh", "im2col", "index", "index_put", "index_select", "kthvalue",
    "masked_fill", "masked_scatter", "masked_select", "max", "max_pool2d_with_indices", "max_pool3d_with_indices",
    "maximum", "median", "min", "minimum", "nan_to_num", "neg", "new_full", "new_ones", "new_zeros", "ones",
    "ones_like", "pixel_shuffle", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "relu", "repeat",
    "replication_pad1d", "replication_pad2d", "replication_pad3d", "roll", "round", "scalar_tensor", "scatter",
    "select_scatter", "sign", "slice_scatter", "sort", "stack", "take", "threshold", "_to_copy", "topk", "tril",
    "triu", "trunc", "_unsafe_view", "upsample_nearest1d", "upsample_nearest2d", "where", "zero", "zeros",
    "zeros_like",
})  # fmt: skip
"""Operators whose results are among what they are given, or whole numbers: they round nothing."""
_ARITHMETIC = frozenset({"add", "addcdiv", "addcmul", "div", "lerp", "mul", "reciprocal", "rsub", "sqrt", "sub"})
_SUMS = frozenset({
    "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "avg_pool2d", "avg_pool3d", "cumsum", "linalg_vector_norm", "mean",
    "norm", "std", "std_mean", "sum", "var", "var_mean",
})  # fmt: skip
_PARTED = frozenset({
    "_log_softmax", "_native_batch_norm_legit", "_softmax", "native_batch_norm", "native_group_norm",
    "native_layer_norm",
})  # fmt: skip
"""Operators that are taken apart: what a whole row is divided by or loses errs in all of it alike, and can be small."""
_FUNCTION_ERRS, _SUM_ERRS = 4, 64
_WALK = 8  # roundings of a running sum of 64 terms add up to one of its terms' own, of more to the root of that many
_LANES = 64  # sums side by side, as a plain kernel's

_METHODS = {
    torch.Tensor.float: torch.float32, torch.Tensor.half: torch.float16, torch.Tensor.bfloat16: torch.bfloat16,
}  # fmt: skip


class NamedAs(TorchFunctionMode):  # type: ignore[misc]
    """While active, what the task's code asks for by the name of one of the types `names` comes as `dtype`."""

    def __init__(self, names: Collection[torch.dtype], dtype: torch.dtype) -> None:
        super().__init__()
        self._names, self._dtype = frozenset(names), dtype

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.view:  # of bits, where it is given a type
            return func(*args, **(kwargs or {}))
        named = {key: self._meant(value) for key, value in (kwargs or {}).items()}
        if _METHODS.get(func) in self._names:
            return torch.Tensor.to(*args, dtype=self._dtype, **named)
        return func(*map(self._meant, args), **named)

    def _meant(self, value: Any) -> Any:
        return self._dtype if isinstance(value, torch.dtype) and value in self._names else value


class MatrixOperands(TorchDispatchMode):  # type: ignore[misc]
    """While active, `change` is applied to the floating operands of matrix products and convolutions."""

    def __init__(self, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self._change = change

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        places = _OPERANDS.get(func.overloadpacket, ())
        with torch.utils._python_dispatch._disable_current_modes():
            given = [
                self._change(arg) if at in places and isinstance(arg, torch.Tensor) and arg.is_floating_point() else arg
                for at, arg in enumerate(args)
            ]
            return func(*given, **(kwargs or {}))


class MadeOfIntegers(TorchDispatchMode):  # type: ignore[misc]
    """While active, every floating tensor that is made of integers, or of nothing, comes times 1 ± `u`.

    For tasks without a floating input: what they begin with is rounded there (a position times a frequency).
    """

    def __init__(self, u: float, rng: np.random.Generator) -> None:
        super().__init__()
        self._u, self._rng = u, rng

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        given = pytree.tree_leaves((args, kwargs))
        if not isinstance(made, torch.Tensor) or made.dtype != torch.float64 or any(map(is_floating, given)):
            return made
        with torch.utils._python_dispatch._disable_current_modes():
            into = torch.empty(made.shape, dtype=made.dtype)
            perturb(into, made.contiguous(), self._u, self._rng)
            return into


class Noise(TorchDispatchMode):  # type: ignore[misc]
    """While active, every float64 result of an operator that rounds is off by as much as in single precision.

    By `u` for arithmetic and 4 u for functions. By 64 u for what adds up, or by a 64th of u for each term where that is
    more: of equal terms all roundings have one sign. Norms and softmax are taken apart.

    Args:
        alike: equal results have equal signs, as they would where one kernel computes them; else all are drawn.
        cancelled: products err by what they add up, which can be far more than what is left of it.
        varied: every operator errs by a share of that, drawn for each: what two of them err never cancels.
    """

    def __init__(
        self, u: float, rng: np.random.Generator, *, alike: bool, cancelled: bool = False, varied: bool = False
    ) -> None:
        super().__init__()
        self._u, self._rng, self._alike, self._cancelled, self._varied = u, rng, alike, cancelled, varied

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__.rstrip("_")
        if name in _PARTED and (parts := torch._decomp.get_decompositions([func])):
            with self:
                return parts[func](*args, **(kwargs or {}))
        if self._cancelled and (places := _OPERANDS.get(func.overloadpacket)):
            terms = args[1][0].numel() if name == "convolution" else args[places[0]].shape[-1]
            u = self._u * max(1.0, math.sqrt(terms) / _WALK)
            with torch.utils._python_dispatch._disable_current_modes():
                args = [self._off(arg.clone(), u) if at in places else arg for at, arg in enumerate(args)]
        made = func(*args, **(kwargs or {}))
        views = any(one.alias_info is not None and not one.alias_info.is_write for one in func._schema.returns)
        if views or name in _EXACT:
            return made
        u = self._u * (1 if name in _ARITHMETIC else _sum_errs(args, made) if name in _SUMS else _FUNCTION_ERRS)
        if self._varied:
            u *= self._rng.random()
        with torch.utils._python_dispatch._disable_current_modes():
            for one in pytree.tree_leaves(made):
                if isinstance(one, torch.Tensor):
                    self._off(one, u)
        return made

    def _off(self, one: torch.Tensor, u: float) -> torch.Tensor:
        """A tensor, changed in place where it holds float64."""
        if one.dtype == torch.float64 and self._alike:
            odd = int(self._rng.integers(2**62)) | 1  # multiplied by it, a high bit is a coin
            coin = one.contiguous().view(torch.int64).mul(odd).bitwise_right_shift(62).bitwise_and(1)
            one.mul_(1 - u + 2 * u * coin)
        elif one.dtype == torch.float64:
            perturb(one, one.clone(), u, self._rng)
        return one


def _sum_errs(args: Any, made: Any) -> float:
    """What a running sum in float may be off by, in u."""
    terms = max((one.numel() for one in args if isinstance(one, torch.Tensor)), default=1)
    results = max((one.numel() for one in pytree.tree_leaves(made) if isinstance(one, torch.Tensor)), default=1)
    return max(_SUM_ERRS, terms / max(results, 1) / _LANES)


def moved(rng: np.random.Generator) -> Callable[[torch.Tensor], torch.Tensor]:
    """Every element of a float64 operand times 1 ± 2⁻¹⁷, a random sign each."""

    def change(operand: torch.Tensor) -> torch.Tensor:
        into = torch.empty_like(operand)
        perturb(into, operand, _STEP, rng)
        return into

    return change


def rounded(operand: torch.Tensor) -> torch.Tensor:
    """A float32 operand rounded to the 10 stored bits of TF32, ties away from zero."""
    if operand.dtype != torch.float32:
        return operand
    bits = operand.contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


def allow_precision(precision: str) -> None:
    """Lets this process's float32 matrix products be as inexact as the policy allows, where torch can."""
    torch.set_float32_matmul_precision({"ieee": "highest", "split": "high", "tf32": "high"}[precision])
