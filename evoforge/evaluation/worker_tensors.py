"""Tensors of a worker process: over shared memory, drawn, perturbed, compared. Child only."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from evoforge.core import TensorSpec
from evoforge.errors import TaskError, UnsupportedError
from evoforge.evaluation.dtypes import DTYPE_NAMES
from evoforge.evaluation.shared import SharedTensors, rises

__all__ = [
    "TORCH_DTYPES", "OnCpu", "add_change", "disjoint", "drawn", "fill", "finish_scale", "keep_default_device",
    "max_error", "own_error_rules", "perturb", "plain", "spec_of", "tensors_of",
]  # fmt: skip

TORCH_DTYPES = {short: getattr(torch, name) for name, short in DTYPE_NAMES.items()}
_BLOCK = 1 << 16  # elements: half a mebibyte of float64
_OUTSIDE = 1e-3  # of the elements
_OWN_SHARE = 32  # of the 512 d that are allowed: 16 times what single precision itself errs
_DOUBLE_FLOOR = 2.0**-59  # 512 times it, 8 ulp of the largest element: what double precision cannot tell
_SHORT = {dtype: short for short, dtype in TORCH_DTYPES.items()}


class OnCpu(TorchFunctionMode):  # type: ignore[misc]
    """While active, tensors that code makes on a GPU, or moves to one, stay on the CPU.

    Task files written for a GPU say ``device="cuda"`` here and there; what is computed is the same. `used` says whether
    that has happened.
    """

    def __init__(self) -> None:
        super().__init__()
        self.used = False

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if function is torch.Tensor.cuda:
            self.used = True
            return args[0]
        # No device is the default one, which may be none at all (meta); what is moved stays where it is.
        moves = function is torch.Tensor.to
        home = args[0].device if moves else None
        named = {name: self._at(home, value) if name == "device" else value for name, value in (kwargs or {}).items()}
        if moves:
            args = [args[0], *(self._at(home, value) for value in args[1:])]
        return function(*args, **named)

    def _at(self, home: torch.device | None, device: Any) -> Any:
        if not _is_gpu(device):
            return device
        self.used = True
        return home


def keep_default_device() -> None:
    """From now on ``torch.set_default_device`` does nothing where it is asked for a GPU."""
    given = torch.set_default_device
    torch.set_default_device = lambda device: None if _is_gpu(device) else given(device)


def _is_gpu(device: Any) -> bool:
    if isinstance(device, int):
        return not isinstance(device, bool)
    return isinstance(device, str | torch.device) and str(device).partition(":")[0] == "cuda"


def tensors_of(shared: SharedTensors) -> list[torch.Tensor]:
    """Torch tensors over the shared memory itself; they keep the mapping alive."""
    tensors = []
    for at, (spec, segment) in enumerate(zip(shared.specs, shared.segments, strict=True)):
        dtype = TORCH_DTYPES[spec.dtype]
        if spec.numel == 0:
            tensors.append(torch.empty(spec.shape, dtype=dtype))
            continue
        skip = segment.data - segment.start
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # which is the point
            flat = torch.from_numpy(shared.bytes_of(at))[skip : skip + spec.nbytes]
        tensors.append(flat.view(dtype).as_strided(spec.shape, spec.stride))
    return tensors


def fill(specs: Sequence[TensorSpec], values: Sequence[torch.Tensor]) -> SharedTensors:
    """New shared memory that holds `values`, laid out as `specs`."""
    shared = SharedTensors(specs)
    for at, (place, value) in enumerate(zip(tensors_of(shared), values, strict=True)):
        if value.numel() and place.dtype == value.dtype and place.is_contiguous() and value.is_contiguous():
            # Writing to the file spares a page fault per 4 KiB of a mapping.
            flat = value.reshape(-1)
            if flat.stride(0) != 1:  # a single element may have any
                flat = flat.clone(memory_format=torch.contiguous_format)
            data = memoryview(flat.view(torch.uint8).numpy())
            written = 0
            while written < len(data):
                written += os.pwrite(shared.fd, data[written:], shared.segments[at].data + written)
        else:
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
    stride = tensor.stride() if disjoint(tensor) else torch.empty(tensor.shape, device="meta").stride()
    return TensorSpec(name, tuple(tensor.shape), tuple(stride), _SHORT[tensor.dtype])


def disjoint(tensor: torch.Tensor) -> bool:
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
    """A tensor like `tensor` from an input family, with its domain.

    Integers stay as they are, and bools but for `masks`; rows that rise stay in order.
    """
    family, _, domain = family.partition(" ")
    if family == "masks":
        turned = torch.rand(tensor.shape, generator=generator) < 1 / 8
        return tensor ^ turned if tensor.dtype == torch.bool else tensor
    if family == "given" or not tensor.is_floating_point():
        return tensor
    value = _of_family(tensor, family, generator)
    if rises(tensor):
        value = value.sort(dim=-1).values  # bounds to search among mean nothing in any other order
    if domain == "(positive)":
        value = value.abs()
    elif domain == "(inside)" and tensor.numel():
        least, largest = (float(end) for end in torch.aminmax(tensor))
        place = torch.where(value == 0, torch.signbit(value).logical_not().double(), torch.sigmoid(2 * value.double()))
        value = torch.lerp(torch.full_like(place, least), torch.full_like(place, largest), place)
        return value.to(tensor.dtype).clamp(min=least, max=largest)
    return value.to(tensor.dtype)


def _of_family(tensor: torch.Tensor, family: str, generator: torch.Generator) -> torch.Tensor:
    shape = tensor.shape
    if family == "normal":
        value = torch.randn(shape, generator=generator)
    elif family == "uniform":
        value = torch.rand(shape, generator=generator) * 2 - 1
    elif family == "wide":
        sign = torch.randint(0, 2, shape, generator=generator) * 2 - 1
        value = torch.exp2(torch.rand(shape, generator=generator) * 20 - 10) * sign
    elif family == "rows":
        # Of few digits: equal terms are all rounded to one side, and thousands of them, added one by one, would be off.
        head = shape[:-1]
        sign = torch.randint(0, 2, head, generator=generator) * 2 - 1
        row = torch.randint(1, 33, head, generator=generator) / 8 * sign
        value = row.unsqueeze(-1).expand(shape) if shape else torch.tensor(1.5)
    elif family == "large":
        root = torch.finfo(tensor.dtype).max ** (0.5 if tensor.dtype == torch.float16 else 0.25)
        value = torch.randn(shape, generator=generator).to(tensor.dtype) * root
    elif family == "tiny":
        power = torch.exp2(torch.rand(shape, generator=generator, dtype=torch.float64) * 12 - 6)
        sign = torch.randint(0, 2, shape, generator=generator) * 2 - 1
        # Squares of them vanish, they themselves are normal numbers: what flushes subnormals is not wrong.
        value = power * sign * torch.finfo(tensor.dtype).tiny ** 0.75
    elif family == "offset":
        head = (*shape[:-1], 1) if shape else ()
        sign = torch.randint(0, 2, head, generator=generator) * 2 - 1
        value = torch.randn(shape, generator=generator) + torch.exp2(torch.rand(head, generator=generator) * 8) * sign
    elif family in ("sunk", "raised"):
        least, sign, range_ = (6, -1, 2) if family == "sunk" else (12, 1, 1)
        value = torch.randn(shape, generator=generator) + sign * 2 ** (least + range_ * _unit(generator))
    elif family == "unit":
        sign = torch.randint(0, 2, shape, generator=generator) * 2 - 1
        value = torch.exp2(torch.rand(shape, generator=generator) / 4 - 1 / 8) * sign
    elif family == "small":
        value = torch.randn(shape, generator=generator) * 2 ** -(6 + 4 * _unit(generator))
    elif family == "ends":
        value = _with_ends(tensor, generator)
    elif family == "outliers":
        sign = torch.randint(0, 2, shape, generator=generator) * 2 - 1
        far = torch.exp2(torch.rand(shape, generator=generator) * 8 - 2) * sign
        value = torch.where(torch.rand(shape, generator=generator) < 1 / 128, far.to(tensor.dtype), tensor)
    elif family in ("zeros", "infinite"):
        value = torch.randn(shape, generator=generator)
        chance, put = (0.5, 0.0) if family == "zeros" else (1e-3, math.inf)
        place = torch.rand(shape, generator=generator) < chance
        value = torch.where(place, torch.copysign(torch.tensor(put), value), value)
        if family == "zeros":  # of a third of the rows each the largest, or the least, is a zero: +0 and -0 are equal
            side = torch.randint(-1, 2, (*shape[:-1], 1) if shape else (), generator=generator)
            value = torch.where((side == 0) | place, value, value.abs() * side)
        if family == "infinite":
            value = torch.where(place & (torch.rand(shape, generator=generator) < 1 / 3), math.nan, value)
    else:
        value = torch.randint(-4, 5, shape, generator=generator) / 2
    return value


def _unit(generator: torch.Generator) -> float:
    return float(torch.rand((), generator=generator))


def _with_ends(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """`tensor`, where the last index along a dimension outweighs all others: who stops short of it is met."""
    ends = torch.zeros(tensor.shape)
    for dim, size in enumerate(tensor.shape):
        if size > 1:
            ends.select(dim, size - 1).add_(1)
    sign = torch.randint(0, 2, tensor.shape, generator=generator) * 2 - 1
    sign.view(-1)[-1:] = 1  # a maximum of all is more common than a minimum
    largest = float(tensor.abs().nan_to_num(0.0, 0.0, 0.0).max()) if tensor.numel() else 0.0
    return torch.where(ends > 0, sign * (largest or 1.0) * 8 ** ends.clamp(max=3), tensor)


def perturb(into: torch.Tensor, source: torch.Tensor, u: float, rng: np.random.Generator) -> None:
    """Writes source · (1 ± u) to the float64 tensor `into`, a random sign per element."""
    # A random byte picks eight factors at once: drawing one each would take longer than the model.
    signs = np.unpackbits(np.arange(256, dtype=np.uint8)).reshape(256, 8)
    table = np.where(signs == 1, 1 + u, 1 - u)
    for part, given in _blocks(into, source):
        count = given.numel()
        picks = np.frombuffer(rng.bytes(-(-count // 8)), np.uint8)
        factors = torch.from_numpy(table.take(picks, axis=0).reshape(-1)[:count])
        part.copy_(given).mul_(factors.view(given.shape))


def is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def add_change(root: torch.Tensor, moved: torch.Tensor, y64: torch.Tensor) -> None:
    """root ← √(root² + (moved − y64)²), elementwise."""
    for sum_, other, y in _blocks(root, moved, y64):
        change = (other - y).square_()
        old = sum_.double()
        sum_.copy_(change.addcmul_(old, old).sqrt_())


def finish_scale(root: torch.Tensor, own: torch.Tensor, y64: torch.Tensor, count: int, u: float) -> None:
    """root ← max(root / √count + u·|y64|, own / √count / 32, 2⁻⁵⁹·max |y64|); what is not finite counts as 0."""
    largest = max(
        (float(y.abs().nan_to_num_(nan=0.0, posinf=0.0).max()) for (y,) in _blocks(y64) if y.numel()), default=0
    )
    for sum_, error, y in _blocks(root, own, y64):
        scale = sum_.double().mul_(count**-0.5).add_(y.abs(), alpha=u).nan_to_num_(nan=0.0, posinf=0.0)
        least = error.double().mul_(count**-0.5 / _OWN_SHARE).nan_to_num_(nan=0.0, posinf=0.0)
        sum_.copy_(torch.maximum(scale, least).clamp_(min=largest * _DOUBLE_FLOOR))


def own_error_rules(root: torch.Tensor, own: torch.Tensor, y64: torch.Tensor, count: int, u: float) -> bool:
    """Whether the second of what `finish_scale` takes is four times the first for more elements than may be outside."""
    far = sum(
        int((error.double() / (4 * _OWN_SHARE) > sum_.double().add_(y.abs(), alpha=u * count**0.5)).sum())
        for sum_, error, y in _blocks(root, own, y64)
    )
    return bool(far > _OUTSIDE * y64.numel())


def max_error(result: torch.Tensor, y64: torch.Tensor) -> float:
    """max |result − y64| over the elements where that is finite; 0 for none."""
    largest = 0.0
    for got, y in _blocks(result, y64):
        if got.numel():
            largest = max(largest, float((got.double() - y).abs_().nan_to_num_(nan=0.0, posinf=0.0).max()))
    return largest


def _blocks(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Matching pieces that fit into a cache: temporaries of full size would be fresh pages every time."""
    if not all(tensor.is_contiguous() for tensor in tensors):
        yield tensors
        return
    flat = [tensor.view(-1) for tensor in tensors]
    for start in range(0, flat[0].numel(), _BLOCK):
        yield tuple(tensor[start : start + _BLOCK] for tensor in flat)
