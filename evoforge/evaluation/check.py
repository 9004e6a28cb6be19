"""Is what a kernel wrote what it should have written?

Everything here looks at memory that the kernel's process shares; none of it runs candidate code.
The elementwise pass is native (native/check.c).
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from evoforge.core import DTYPES, TensorSpec, Tolerance
from evoforge.evaluation.build import native_program
from evoforge.evaluation.shared import SharedTensors
from evoforge.evaluation.worker import Reference

__all__ = ["Check", "Samples", "check_outputs", "damaged_slack", "poison", "poison_slack", "same_bits"]

_CODES = list(DTYPES)
_SHARE_OUTSIDE = 1e-3
_CANARY = (0xA5, 0x5A)
_FLOAT_POISON = {2: (0xFFFF, 0x7FFF), 4: (0xFFFFFFFF, 0x7FFFFFFF), 8: (2**64 - 1, 2**63 - 1)}
_INTEGER_POISON = (0xAB, 0x54)
_SAMPLES = 4096
_LARGE = 1 << 20  # elements from which a second thread pays


@dataclass(frozen=True)
class Check:
    """The verdict on all outputs of one call.

    `max_error` is max |y − y64| over finite elements, `relative_l2` the worst output's
    ‖y − y64‖ / ‖y64‖ (0 for integers).
    """

    passed: bool
    reason: str
    max_error: float
    relative_l2: float


class _Result(ctypes.Structure):
    _fields_ = (
        ("beyond", ctypes.c_int64), ("hard", ctypes.c_int64), ("nonfinite", ctypes.c_int64), ("worst", ctypes.c_int64),
        ("max_error", ctypes.c_double), ("sum_error2", ctypes.c_double), ("sum_reference2", ctypes.c_double),
    )  # fmt: skip


@lru_cache
def _native() -> Any:
    flags = ("-march=native", "-ffp-contract=off", "-fno-trapping-math", "-fassociative-math", "-fno-signed-zeros")
    library = ctypes.CDLL(str(native_program("check.c", *flags, "-fopenmp-simd", "-lm", shared=True)))
    library.evo_check_output.argtypes = [
        ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_double,
        ctypes.c_double, ctypes.c_int, ctypes.POINTER(_Result),
    ]  # fmt: skip
    library.evo_check_output.restype = None
    library.evo_same_bytes.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    library.evo_same_bytes.restype = ctypes.c_int
    return library


def check_outputs(outputs: SharedTensors, reference: Reference, tolerance: Tolerance) -> Check:
    """Judges every output against the fp64 reference (EVALUATION, correctness 2).

    With tolᵢ = factor·dᵢ + 2⁻¹²⁶ (+ 1 ulp of yᵢ for 16-bit outputs), at least 99.9% of the elements
    must be within tolᵢ and all within max(tolᵢ, 16·error of the fp32 reference). NaN and ±Inf must
    stand where the reference has them (`nonfinite="match"`) or nowhere (``forbid``). Integers and
    bools are exact.
    """
    pairs = _reference_arrays(outputs.specs, reference)
    values = [np.ascontiguousarray(outputs.array(index)) for index in range(len(outputs.specs))]
    return _judge(outputs.specs, values, pairs, reference.ref_error, tolerance)


def _reference_arrays(
    specs: Sequence[TensorSpec], reference: Reference
) -> list[tuple[npt.NDArray[Any], npt.NDArray[Any] | None]]:
    """(y64, d or None) per output; only floating outputs have a d."""
    pairs: list[tuple[npt.NDArray[Any], npt.NDArray[Any] | None]] = []
    floats = 0
    for index, spec in enumerate(specs):
        d = reference.d.array(floats) if spec.is_float else None
        floats += spec.is_float
        pairs.append((np.ascontiguousarray(reference.y64.array(index)), d))
    return pairs


def _judge(
    specs: Sequence[TensorSpec],
    values: Sequence[npt.NDArray[Any]],
    pairs: Sequence[tuple[npt.NDArray[Any], npt.NDArray[Any] | None]],
    ref_error: Sequence[float],
    tolerance: Tolerance,
) -> Check:
    reason, max_error, relative = "", 0.0, 0.0
    for spec, y, (y64, d), error in zip(specs, values, pairs, ref_error, strict=True):
        scale = np.ascontiguousarray(d) if d is not None else None
        found = _compare(spec, y, y64, scale, error, tolerance)
        max_error = max(max_error, found.max_error)
        if found.sum_reference2 > 0:
            relative = max(relative, math.sqrt(found.sum_error2 / found.sum_reference2))
        # An integer output has no share to give away: its tolerance is zero.
        allowed = int(_SHARE_OUTSIDE * y.size) if spec.is_float else 0
        if not reason and (found.hard or found.beyond > allowed):
            reason = _wrong(spec, y, y64, found)
    return Check(not reason, reason, max_error, relative)


def _compare(
    spec: TensorSpec, y: npt.NDArray[Any], y64: npt.NDArray[Any], d: npt.NDArray[Any] | None, error: float,
    tolerance: Tolerance,
) -> _Result:  # fmt: skip
    """The native pass over one output, large ones in two threads: nothing is measured meanwhile."""
    half = y.size // 2 if y.size >= _LARGE else 0
    parts = [(start, stop) for start, stop in ((0, half), (half, y.size)) if stop > start or y.size == 0]
    flat, expected = y.reshape(-1), y64.reshape(-1)
    scale = d.reshape(-1) if d is not None else None

    def one(part: tuple[int, int]) -> _Result:
        start, stop = part
        found = _Result()
        _native().evo_check_output(
            flat[start:].ctypes.data, _CODES.index(spec.dtype), expected[start:].ctypes.data,
            scale[start:].ctypes.data if scale is not None else None, stop - start, tolerance.factor, error,
            tolerance.nonfinite == "forbid", ctypes.byref(found),
        )  # fmt: skip
        found.worst += start
        return found

    if len(parts) == 1:
        return one(parts[0])
    with ThreadPoolExecutor(len(parts)) as pool:
        first, second = pool.map(one, parts)
    worse = max(first, second, key=lambda part: (part.hard > 0, part.beyond > 0, part.max_error))
    return _Result(
        first.beyond + second.beyond, first.hard + second.hard, first.nonfinite + second.nonfinite, worse.worst,
        max(first.max_error, second.max_error), first.sum_error2 + second.sum_error2,
        first.sum_reference2 + second.sum_reference2,
    )  # fmt: skip


def _wrong(spec: TensorSpec, y: npt.NDArray[Any], y64: npt.NDArray[Any], found: _Result) -> str:
    at = int(found.worst)
    place = tuple(int(i) for i in np.unravel_index(at, y.shape)) if y.shape else ()
    got, wanted = y.reshape(-1)[at], y64.reshape(-1)[at]
    bits = int(got.view(f"u{got.dtype.itemsize}")) if spec.is_float else None
    if bits is not None and bits in _FLOAT_POISON[spec.itemsize] and not math.isnan(wanted):
        return f"{spec.name}{list(place)} was never written ({found.nonfinite} elements are not finite)"
    if spec.dtype == "bf16":
        got = np.uint32(int(got) << 16).view(np.float32)
    share = 100.0 * found.beyond / max(y.size, 1)
    return (
        f"{spec.name}{list(place)} is {got!s}, expected {wanted!s}; {share:.3g}% of its elements are out of tolerance"
    )


def poison(outputs: SharedTensors, variant: int) -> None:
    """Overwrites the outputs (NaN; integers: a byte pattern) and puts canaries around them.

    Both depend on `variant` (0 or 1): what a kernel leaves unwritten differs between two runs.
    """
    for index, (spec, segment) in enumerate(zip(outputs.specs, outputs.segments, strict=True)):
        whole = outputs.bytes_of(index)
        begin = segment.data - segment.start
        inner = whole[begin : begin + segment.nbytes]
        whole[:begin] = _CANARY[variant]
        whole[begin + segment.nbytes :] = _CANARY[variant]
        if spec.is_float:
            inner.view(f"<u{spec.itemsize}")[:] = _FLOAT_POISON[spec.itemsize][variant]
        else:
            inner[:] = _INTEGER_POISON[variant]


def poison_slack(tensors: SharedTensors, variant: int) -> None:
    """Fills what lies around each tensor: a kernel that reads it gives two different answers."""
    for index, segment in enumerate(tensors.segments):
        whole = tensors.bytes_of(index)
        begin = segment.data - segment.start
        # 64 bytes before the start are what an off-by-one reads; the rest of the page stays untouched memory.
        whole[max(0, begin - 64) : begin] = _CANARY[variant]
        whole[begin + segment.nbytes :] = _CANARY[variant]


def damaged_slack(outputs: SharedTensors, variant: int) -> str | None:
    """Which canary of `poison` is gone, in words; None when all are whole."""
    for index, (spec, segment) in enumerate(zip(outputs.specs, outputs.segments, strict=True)):
        whole = outputs.bytes_of(index)
        begin = segment.data - segment.start
        if (whole[:begin] != _CANARY[variant]).any():
            return f"wrote before the start of {spec.name}"
        if (whole[begin + segment.nbytes :] != _CANARY[variant]).any():
            return f"wrote past the end of {spec.name}"
    return None


def same_bits(first: SharedTensors, second: SharedTensors) -> bool:
    """Whether two output buffers of one signature hold the same bytes, slack left out."""
    for index, segment in enumerate(first.segments):
        if not _native().evo_same_bytes(first.address(index), second.address(index), segment.nbytes):
            return False
    return True


class Samples:
    """A secret random sample of one output buffer, poisoned before a timed batch and judged after it."""

    def __init__(self, outputs: SharedTensors, rng: np.random.Generator) -> None:
        self._outputs = outputs
        self._chosen: list[npt.NDArray[np.int64]] = []
        self._offsets: list[npt.NDArray[np.int64]] = []
        for index, spec in enumerate(outputs.specs):
            few = spec.numel <= _SAMPLES
            chosen = np.arange(spec.numel) if few else rng.integers(0, spec.numel, _SAMPLES, np.int64)
            places = np.unravel_index(chosen, spec.shape) if spec.shape else ()
            offsets = np.zeros_like(chosen)
            for place, step in zip(places, spec.stride, strict=True):
                offsets += place * step
            self._chosen.append(chosen)
            self._offsets.append(offsets)
            bits = self._bits(index)
            bits[offsets] = _FLOAT_POISON[spec.itemsize][0] if spec.is_float else ~bits[offsets]

    def check(self, reference: Reference, tolerance: Tolerance) -> Check:
        """Judges the sampled elements as a whole output is judged."""
        specs = self._outputs.specs
        values, pairs = [], []
        arrays = _reference_arrays(specs, reference)
        for index in range(len(specs)):
            y64, d = arrays[index]
            chosen = self._chosen[index]
            values.append(self._typed(index)[self._offsets[index]])
            pairs.append((y64.reshape(-1)[chosen], d.reshape(-1)[chosen] if d is not None else None))
        found = _judge(specs, values, pairs, reference.ref_error, tolerance)
        if found.passed:
            return found
        return Check(False, f"in a timed batch, at a sampled element: {found.reason}", found.max_error, 0.0)

    def _bits(self, index: int) -> npt.NDArray[Any]:
        segment, spec = self._outputs.segments[index], self._outputs.specs[index]
        begin = segment.data - segment.start
        return self._outputs.bytes_of(index)[begin : begin + segment.nbytes].view(f"<u{spec.itemsize}")

    def _typed(self, index: int) -> npt.NDArray[Any]:
        return self._bits(index).view(self._outputs.array(index).dtype)
