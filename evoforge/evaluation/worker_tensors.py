"""Tensors of a worker process: over shared memory, drawn, perturbed, compared. Child only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from evoforge.core import TensorSpec
from evoforge.errors import TaskError, UnsupportedError
from evoforge.evaluation.dtypes import DTYPE_NAMES
from evoforge.evaluation.shared import SharedTensors

__all__ = ["TORCH_DTYPES", "drawn", "fill", "max_error", "perturbed", "plain", "spec_of", "tensors_of"]

TORCH_DTYPES = {short: getattr(torch, name) for name, short in DTYPE_NAMES.items()}
_SHORT = {dtype: short for short, dtype in TORCH_DTYPES.items()}


def tensors_of(shared: SharedTensors) -> list[torch.Tensor]:
    """Torch tensors over the shared memory itself; they keep the mapping alive."""
    tensors = []
    for at, (spec, segment) in enumerate(zip(shared.specs, shared.segments, strict=True)):
        dtype = TORCH_DTYPES[spec.dtype]
        if spec.numel == 0:
            tensors.append(torch.empty(spec.shape, dtype=dtype))
            continue
        skip = segment.data - segment.start
        flat = torch.from_numpy(shared.bytes_of(at))[skip : skip + spec.nbytes]
        tensors.append(flat.view(dtype).as_strided(spec.shape, spec.stride))
    return tensors


def fill(specs: Sequence[TensorSpec], values: Sequence[torch.Tensor]) -> SharedTensors:
    """New shared memory that holds `values`, laid out as `specs`."""
    shared = SharedTensors(specs)
    for place, value in zip(tensors_of(shared), values, strict=True):
        place.copy_(value)
    return shared


def plain(tensor: torch.Tensor, what: str) -> torch.Tensor:
    """A strided CPU tensor of a covered dtype."""
    if tensor.layout != torch.strided or tensor.dtype not in _SHORT:
        kind = str(tensor.dtype if tensor.layout == torch.strided else tensor.layout).removeprefix("torch.")
        raise UnsupportedError(f"{what} is {kind}, which is not covered; covered are dense {', '.join(DTYPE_NAMES)}")
    if tensor.device.type not in ("cpu", "meta"):
        raise TaskError(f"expected {what} on the CPU, got it on {tensor.device}; make it without a device")
    return tensor.detach().resolve_conj().resolve_neg()


def spec_of(tensor: torch.Tensor, name: str) -> TensorSpec:
    """Its sizes and strides; contiguous ones where elements share a place."""
    stride = tensor.stride() if _disjoint(tensor) else torch.empty(tensor.shape, device="meta").stride()
    return TensorSpec(name, tuple(tensor.shape), tuple(stride), _SHORT[tensor.dtype])


def _disjoint(tensor: torch.Tensor) -> bool:
    """Whether no two elements share a place (an expanded tensor does)."""
    reach = 1
    for step, size in sorted(
        (step, size) for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size > 1
    ):
        if step < reach:
            return False
        reach += (size - 1) * step
    return True


def drawn(tensor: torch.Tensor, family: str, generator: torch.Generator) -> torch.Tensor:
    """A tensor like `tensor` from an input family; integers and bools stay as they are."""
    if family == "given" or not tensor.is_floating_point():
        return tensor
    shape = tensor.shape
    if family == "normal":
        value = torch.randn(shape, generator=generator)
    elif family == "uniform":
        value = torch.rand(shape, generator=generator) * 2 - 1
    elif family == "wide":
        sign = torch.randint(0, 2, shape, generator=generator) * 2 - 1
        value = torch.exp2(torch.rand(shape, generator=generator) * 20 - 10) * sign
    elif family == "rows":
        head = shape[:-1]
        value = torch.randn(head, generator=generator).unsqueeze(-1).expand(shape) if shape else torch.tensor(1.5)
    else:
        value = torch.randint(-8, 9, shape, generator=generator)
    return value.to(tensor.dtype)


def perturbed(tensor: torch.Tensor, u: float, rng: np.random.Generator) -> torch.Tensor:
    """Every element times 1 + u or 1 − u; a bit each, since drawing integers would take longer than the model."""
    if not tensor.is_floating_point():
        return tensor
    count = tensor.numel()
    bits = np.unpackbits(np.frombuffer(rng.bytes(-(-count // 8)), np.uint8))[:count]
    up = torch.from_numpy(bits).view(torch.bool).view(tensor.shape)
    return torch.where(up, tensor * (1 + u), tensor * (1 - u))


def max_error(result: torch.Tensor, y64: torch.Tensor) -> float:
    """max |result − y64| over the elements where that is finite; 0 for none."""
    if result.numel() == 0:
        return 0.0
    return float((result.double() - y64).abs().nan_to_num_(nan=0.0, posinf=0.0).max())
