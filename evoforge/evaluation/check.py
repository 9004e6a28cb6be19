"""Is what a kernel wrote what it should have written?

Everything here looks at memory that the kernel's process shares; none of it runs candidate code.
The passes are native (native/check.c) and go over large outputs in several threads: nothing is
measured meanwhile, and a search waits for them.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from evoforge.core import DTYPES, TensorSpec, Tolerance
from evoforge.evaluation.dtypes import SHORT_FLOATS, scale_dtype
from evoforge.evaluation.native import native_program
from evoforge.evaluation.shared import SharedTensors, numpy_dtype
from evoforge.evaluation.worker import Reference

__all__ = ["Check", "Samples", "check_outputs", "damaged_slack", "poison", "poison_slack", "prepare"]

_T = TypeVar("_T")

_CODES = list(DTYPES)
_SHARE_OUTSIDE = {8: 1e-3, 4: 1e-3, 2: 1e-4}
"""By bytes per element. A 16-bit output is allowed an ulp and an honest one needs half of it (docs/tolerance.md)."""
_SLICE = 64  # elements from which a slice is no accident
_CANARY = (0xA5, 0x5A)
# NaN, and a large number, since NaN may be what is expected.
_FLOAT_POISON = {2: (0xFFFF, 0x7ACE), 4: (0xFFFFFFFF, 0x7EDCBA98), 8: (2**64 - 1, 0x7FDCBA9876543210)}
_INTEGER_POISON = (0xAB, 0x54)
_SAMPLES = 4096
_LARGE = 1 << 20  # elements from which more threads pay
_THREADS = 4


@dataclass(frozen=True)
class Check:
    """The verdict on all outputs of one call.

    `max_error` is max |y − y64| over finite elements. `same` is whether the outputs are bit for bit those that
    they were compared with, if any.
    """

    passed: bool
    reason: str
    max_error: float
    same: bool = True


class _Result(ctypes.Structure):
    _fields_ = (
        ("beyond", ctypes.c_int64), ("hard", ctypes.c_int64), ("nonfinite", ctypes.c_int64), ("worst", ctypes.c_int64),
        ("max_error", ctypes.c_double), ("differs", ctypes.c_int64),
    )  # fmt: skip


def prepare() -> None:
    """Compiles and loads the native pass, unless that was done before."""
    _native()


@lru_cache
def _native() -> Any:
    flags = ("-march=native", "-ffp-contract=off", "-fno-trapping-math", "-fassociative-math", "-fno-signed-zeros")
    library = ctypes.CDLL(str(native_program("check.c", *flags, "-fopenmp-simd", "-lm", shared=True)))
    library.evo_check_output.argtypes = [
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64,
        ctypes.c_double, ctypes.c_double, ctypes.c_int, ctypes.POINTER(_Result),
    ]  # fmt: skip
    library.evo_fill.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int64]
    library.evo_scatter.argtypes = [
        ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_uint64,
    ]  # fmt: skip
    library.evo_gather.argtypes = [
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int64,
    ]  # fmt: skip
    for name in ("evo_check_output", "evo_fill", "evo_scatter", "evo_gather"):
        getattr(library, name).restype = None
    return library


@lru_cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(_THREADS, len(os.sched_getaffinity(0))), "evoforge-check")


def _in_parts(count: int, work: Callable[[int, int], _T]) -> list[_T]:
    """work(start, stop) over parts of `count` elements, large ones side by side: native code frees the GIL."""
    parts = min(_THREADS, len(os.sched_getaffinity(0))) if count >= _LARGE else 1
    step = -(-count // parts // 64) * 64 or 1
    bounds = [(start, min(start + step, count)) for start in range(0, max(count, 1), step)]
    if len(bounds) == 1:
        return [work(*bounds[0])]
    return list(_pool().map(lambda bound: work(*bound), bounds))


def check_outputs(
    outputs: SharedTensors, reference: Reference, tolerance: Tolerance, *, earlier: SharedTensors | None = None
) -> Check:
    """Judges every output against the fp64 reference (docs/tolerance.md).

    With tolᵢ = factor·dᵢ + 2⁻¹²⁶ (f64: 2⁻¹⁰²²; + 1 ulp of yᵢ for 16-bit outputs), at least 99.9% of the elements
    (99.99% of 16-bit ones) must be within tolᵢ and all within max(tolᵢ, 16·error of the fp32
    reference). Those that are not may not be more than half of a row, column or other slice of 64
    elements or more: it may hold small numbers beside large ones. NaN and ±Inf must stand where the
    reference has them (`nonfinite="match"`) or nowhere (``forbid``). Integers and bools are exact, but
    for indices that serve as well (`Reference.also`, `equal`).
    `earlier` are outputs to compare bits with on the way, which spares a pass.
    """
    pairs = _reference_arrays(outputs.specs, reference)
    values = [np.ascontiguousarray(array) for array in outputs.arrays()]
    before = [np.ascontiguousarray(array) for array in earlier.arrays()] if earlier else None
    if not (reference.also.specs or reference.equal):
        return _judge(outputs.specs, values, pairs, reference.ref_error, tolerance, before)
    found = _judge(outputs.specs, _settled(values, pairs, reference), pairs, reference.ref_error, tolerance, None)
    steady = not before or all(y.tobytes() == old.tobytes() for y, old in zip(values, before, strict=True))
    return replace(found, same=steady)


def _settled(
    values: Sequence[npt.NDArray[Any]], pairs: Sequence[tuple[npt.NDArray[Any], npt.NDArray[Any] | None]],
    reference: Reference, places: Sequence[npt.NDArray[np.int64]] | None = None,
) -> list[npt.NDArray[Any]]:  # fmt: skip
    """The outputs, with the reference's index wherever there is one that serves as well (`Reference.also`, `equal`).

    `places` are the elements of each output that `values` and `pairs` hold; None: all, in order.
    """
    also = reference.also.array(0) if reference.also.specs else np.zeros((0, 3), np.int64)
    settled = []
    for at, (y, (y64, d)) in enumerate(zip(values, pairs, strict=True)):
        wrong = np.flatnonzero(y != y64) if d is None else np.zeros(0, np.int64)
        elements = wrong if places is None else places[at][wrong]
        got, wanted = y.reshape(-1)[wrong], y64.reshape(-1)[wrong]
        fine, twice = np.zeros(wrong.size, bool), np.zeros(wrong.size, bool)
        for (output, inner), rows in zip(reference.equal, reference.picked.arrays(), strict=True):
            if output != at or not wrong.size:
                continue
            steps = reference.y64.specs[at].numel // len(rows)
            row = elements // (steps * inner) * inner + elements % inner
            inside = (got >= 0) & (got < rows.shape[1])
            fine |= inside & (rows[row, np.where(inside, got, 0)] == rows[row, wanted])
            if places is None:
                twice |= _repeated(y.reshape(-1, steps, inner))[row]
        left = np.flatnonzero(~fine)
        if 0 < left.size <= max(len(also), _SAMPLES):
            near = also[(also[:, 0] == at) & np.isin(also[:, 1], elements[left])]
            known = {(element, index) for _, element, index in near.tolist()}
            fine[left] = [pair in known for pair in zip(elements[left].tolist(), got[left].tolist(), strict=True)]
        fine &= ~twice  # which of them is free, but each only once
        if fine.any():
            y = y.copy()
            y.reshape(-1)[wrong[fine]] = wanted[fine]
        settled.append(y)
    return settled


def _repeated(indices: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Whether a row, of those along the second of three dimensions, names an index twice."""
    ordered = np.sort(indices, axis=1)
    twice: npt.NDArray[np.bool_] = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    return twice.reshape(-1)


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
    specs: Sequence[TensorSpec], values: Sequence[npt.NDArray[Any]],
    pairs: Sequence[tuple[npt.NDArray[Any], npt.NDArray[Any] | None]], ref_error: Sequence[float],
    tolerance: Tolerance, earlier: Sequence[npt.NDArray[Any]] | None = None,
    most: Callable[[float], float] = lambda mean: mean, places: Sequence[npt.NDArray[np.int64]] | None = None,
) -> Check:  # fmt: skip
    """`most`: how many elements may be out of tolerance where that many are allowed in the mean. `places`: as for
    `_settled`."""
    reason, max_error, same = "", 0.0, True
    for at, (spec, y, (y64, d), error) in enumerate(zip(specs, values, pairs, ref_error, strict=True)):
        found = _compare(spec, y, y64, d, error, tolerance, earlier[at] if earlier else None)
        max_error = max(max_error, found.max_error)
        same = same and not found.differs
        # An integer output has no share to give away: its tolerance is zero.
        allowed = int(most(_SHARE_OUTSIDE[spec.itemsize] * y.size)) if spec.is_float else 0
        if not reason and (found.hard or found.beyond > allowed):
            reason = _wrong(spec, y, y64, found, places[at] if places else None)
        if not reason and found.beyond and d is not None and y.shape == spec.shape:
            reason = _wrong_slice(spec, y, y64, d, tolerance.factor)
    return Check(not reason, reason, max_error, same)


def _compare(
    spec: TensorSpec, y: npt.NDArray[Any], y64: npt.NDArray[Any], d: npt.NDArray[Any] | None, error: float,
    tolerance: Tolerance, earlier: npt.NDArray[Any] | None,
) -> _Result:  # fmt: skip
    """The native pass over one output; all arrays are contiguous."""
    scale = numpy_dtype(scale_dtype(spec.dtype))
    d = None if d is None else np.ascontiguousarray(d, scale)
    native, code, forbid = _native(), _CODES.index(spec.dtype), tolerance.nonfinite == "forbid"
    addresses = [array.ctypes.data if array is not None else None for array in (y, earlier, y64, d)]
    sizes = (spec.itemsize, spec.itemsize, 8, scale.itemsize)

    def one(start: int, stop: int) -> _Result:
        found = _Result()
        here = [at + start * size if at is not None else None for at, size in zip(addresses, sizes, strict=True)]
        native.evo_check_output(
            here[0], here[1], code, here[2], here[3], stop - start, tolerance.factor, error, forbid, ctypes.byref(found)
        )
        found.worst += start
        return found

    found = _in_parts(y.size, one)
    whole = max(found, key=lambda part: (part.hard > 0, part.beyond > 0, part.nonfinite > 0, part.max_error))
    for part in found:
        if part is not whole:
            for name in ("beyond", "hard", "nonfinite"):
                setattr(whole, name, getattr(whole, name) + getattr(part, name))
            whole.max_error = max(whole.max_error, part.max_error)
            whole.differs |= part.differs
    return whole


def _wrong(
    spec: TensorSpec, y: npt.NDArray[Any], y64: npt.NDArray[Any], found: _Result, places: npt.NDArray[np.int64] | None
) -> str:
    at = int(found.worst)
    element = at if places is None else int(places[at])
    place = tuple(int(i) for i in np.unravel_index(element, spec.shape or (1,)))
    got, wanted = y.reshape(-1)[at], y64.reshape(-1)[at]
    bits = int(got.view(f"u{got.dtype.itemsize}")) if spec.is_float else None
    if bits is not None and bits in _FLOAT_POISON[spec.itemsize]:
        return f"{spec.name}{list(place)} was never written, or of what never was ({found.beyond} elements are wrong)"
    if spec.dtype == "bf16":
        got = np.uint32(int(got) << 16).view(np.float32)
    share = 100.0 * found.beyond / max(y.size, 1)
    steps = [step for size, step in zip(spec.shape, spec.stride, strict=True) if size > 1]
    strides = "" if steps == sorted(steps, reverse=True) else f"; its strides are {list(spec.stride)}"
    return (
        f"{spec.name}{list(place)} is {got!s}, expected {wanted!s}; {share:.3g}% of its elements are out of tolerance"
        f"{strides}"
    )


def _wrong_slice(
    spec: TensorSpec, y: npt.NDArray[Any], y64: npt.NDArray[Any], d: npt.NDArray[Any], factor: float
) -> str:
    """Which slice is more than half out of tolerance, in words; none where the few that are lie scattered."""
    got = ((y.astype(np.uint32) << 16).view(np.float32) if spec.dtype == "bf16" else y).astype(np.float64)
    wide = factor * d.astype(np.float64) + (2.0**-1022 if spec.dtype == "f64" else 2.0**-126)
    digits, least = SHORT_FLOATS.get(spec.dtype, (0, 0))
    if digits:
        wide += np.exp2(np.maximum(np.frexp(y64)[1] - 1, least) - digits)
    with np.errstate(invalid="ignore"):
        beyond = (np.abs(got - y64) > wide) & np.isfinite(got)  # infinite by right, or it had failed before
    for dim, size in enumerate(y.shape):
        others = tuple(at for at in range(y.ndim) if at != dim)
        if size > 1 and y.size // size >= _SLICE:
            counts = beyond.sum(others)
            worst = int(counts.argmax())
            if 2 * counts[worst] > y.size // size:
                place = ", ".join(str(worst) if at == dim else ":" for at in range(y.ndim))
                return f"{counts[worst]} of the {y.size // size} elements of {spec.name}[{place}] are out of tolerance"
    return ""


def poison(outputs: SharedTensors, variant: int) -> None:
    """Overwrites the outputs (NaN or a large number; integers: a byte pattern) and puts canaries around them.

    Both depend on `variant` (0 or 1): what a kernel leaves unwritten differs between two runs.
    """
    native = _native()
    for index, (spec, segment) in enumerate(zip(outputs.specs, outputs.segments, strict=True)):
        whole = outputs.bytes_of(index)
        begin = segment.data - segment.start
        whole[:begin] = _CANARY[variant]
        whole[begin + segment.nbytes :] = _CANARY[variant]
        one = _pattern(spec, variant)
        eight = int.from_bytes(one * (8 // len(one)), "little")
        at = outputs.address(index)

        def fill(start: int, stop: int, at: int = at, eight: int = eight) -> None:
            native.evo_fill(at + start, eight, stop - start)

        _in_parts(segment.nbytes, fill)


def _pattern(spec: TensorSpec, variant: int) -> bytes:
    if spec.is_float:
        return _FLOAT_POISON[spec.itemsize][variant].to_bytes(spec.itemsize, "little")
    return bytes([_INTEGER_POISON[variant]])


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


class Samples:
    """A secret random sample of one output buffer, half of it poisoned before a timed batch, judged after it.

    Drawn anew for every batch, the other half only when it is judged: what is poisoned a kernel can find, and it
    would compute nothing else. Of what it left out an earlier answer, to other inputs, stands in the other half.

    Args:
        poisoned: the whole buffer is, so that no sample need be.
    """

    def __init__(self, outputs: SharedTensors, rng: np.random.Generator, *, poisoned: bool = False) -> None:
        self._outputs = outputs
        self._rng = rng
        self._poisoned = [np.zeros(0, np.int64) if poisoned else _drawn(spec, rng) for spec in outputs.specs]
        for index, (spec, places) in enumerate(zip(outputs.specs, self._poisoned, strict=True)):
            offsets = _offsets(spec, places)
            flipped = None if spec.is_float else ~_gathered(outputs.address(index), f"<u{spec.itemsize}", offsets)
            pattern = _FLOAT_POISON[spec.itemsize][1] if spec.is_float else 0
            _native().evo_scatter(
                outputs.address(index), spec.itemsize, offsets.ctypes.data, offsets.size,
                flipped.ctypes.data if flipped is not None else None, pattern,
            )  # fmt: skip

    def check(self, reference: Reference, tolerance: Tolerance) -> Check:
        """Judges the sampled elements as a whole output is judged, but for how many are out of tolerance.

        An evaluation draws hundreds of samples: each may have as many as chance gives one in a billion.
        """
        specs = self._outputs.specs
        drawn = [_drawn(spec, self._rng) for spec in specs]
        places = [
            late if late.size == spec.numel else np.concatenate((early, late))
            for spec, early, late in zip(specs, self._poisoned, drawn, strict=True)
        ]
        values: list[npt.NDArray[Any]] = []
        pairs: list[tuple[npt.NDArray[Any], npt.NDArray[Any] | None]] = []
        for index, spec in enumerate(specs):
            here, floats = places[index], len([one for one in specs[:index] if one.is_float])
            kind = numpy_dtype(spec.dtype).str
            values.append(_gathered(self._outputs.address(index), kind, _offsets(spec, here)))
            y64 = _gathered(reference.y64.address(index), "<f8" if spec.is_float else "<i8", here)
            scale = numpy_dtype(reference.d.specs[floats].dtype).str if spec.is_float else ""
            pairs.append((y64, _gathered(reference.d.address(floats), scale, here) if spec.is_float else None))
        if reference.also.specs or reference.equal:
            values = _settled(values, pairs, reference, places)
        found = _judge(specs, values, pairs, reference.ref_error, tolerance, most=_by_chance, places=places)
        if found.passed:
            return found
        return Check(False, f"in a timed batch, at a sampled element: {found.reason}", found.max_error)


def _drawn(spec: TensorSpec, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Row-major numbers of elements: `_SAMPLES` random ones, all of a small output."""
    if spec.numel <= _SAMPLES:
        return np.arange(spec.numel, dtype=np.int64)
    return rng.integers(0, spec.numel, _SAMPLES, np.int64)


def _by_chance(mean: float) -> float:
    return mean + 6 * math.sqrt(mean) + 4


def _offsets(spec: TensorSpec, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Where the elements of these row-major numbers lie, in elements from the start."""
    offsets, left, dense = np.zeros_like(places), places, 1
    for size, step in zip(reversed(spec.shape), reversed(spec.stride), strict=True):
        if step != dense and size > 1:
            break
        dense *= size
    else:
        return places
    for size, step in zip(reversed(spec.shape), reversed(spec.stride), strict=True):
        left, place = np.divmod(left, size)
        offsets += place * step
    return offsets


def _gathered(address: int, kind: str, offsets: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    values = np.empty(offsets.size, kind)
    _native().evo_gather(values.ctypes.data, address, values.itemsize, offsets.ctypes.data, offsets.size)
    return values
