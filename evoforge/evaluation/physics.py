"""The time that no kernel can go below: a lower bound from traffic and arithmetic.

What is needed of inputs and constants is read once and outputs are written once, from as near a cache as the judge's
rules let them lie in, at the best measured rate of that traffic mix; arithmetic runs at the
measured peak. What beats the bound clearly did less than the work (docs/judging.md).
"""

from __future__ import annotations

from collections.abc import Mapping

from evoforge.core import Signature, Target, TensorSpec
from evoforge.evaluation.timing import ring_size

__all__ = ["bound_ms"]

_MIXES = {"read": 0.0, "2:1": 1 / 3, "copy": 0.5, "stream": 0.5, "2:2": 0.5, "write": 1.0}
"""Measured traffic mix → written share of its bytes."""

_MATRIX_PEAK = 16.0
"""Matrix units do sixteen times the single-precision rate; a bound must allow for them."""
_SHORT = ("f16", "bf16", "i8", "u8", "bool")
_LONG = ("f32", "f64")


def bound_ms(
    signature: Signature,
    flops: Mapping[str, float],
    target: Target,
    precision: str = "ieee",
    read: Mapping[str, int] | None = None,
) -> float | None:
    """Lower bound of one warm call in milliseconds; None where no ceilings were measured.

    Args:
        flops: floating-point operations by dtype; integer ones are not counted.
        precision: the task's policy, which says how many short products make one of floats on a matrix unit.
        read: elements of inputs and constants that have to be read, by name; those left out have none. None: all.
    """
    if not target.ceilings:
        return None
    arithmetic_s = _arithmetic_s(flops, target, _f32_peak(signature, target, precision))
    return max(_memory_s(signature, target, read), arithmetic_s) * 1000.0


def _memory_s(signature: Signature, target: Target, needed: Mapping[str, int] | None) -> float:
    read = _touched(signature.inputs, needed) + _touched(signature.constants, needed)
    written = _touched(signature.outputs)
    total = read + written
    if total == 0:
        return 0.0
    share = written / total
    l2 = target.l2_total_bytes
    l3 = l2 + int(target.fingerprint.get("l3_bytes", 0))
    seconds = 0.0
    for level, inside in (("l2", 0), ("l3", l2), ("dram", l3)):
        rate = _rate(target.ceilings, level, share)
        if rate > 0:
            seconds = max(seconds, _missed(signature, target, inside, needed) / rate)
    return seconds


def _missed(signature: Signature, target: Target, cache_bytes: float, needed: Mapping[str, int] | None) -> float:
    """Bytes per call that a cache of that size cannot serve, however well it is managed.

    Constants are used in every call, each of the two output buffers in every second, each input set
    once per turn of the ring: the cache is best spent in that order (a fractional knapsack).
    """
    sets = ring_size(signature, target.l2_total_bytes)
    constants, inputs = (_touched(specs, needed) for specs in (signature.constants, signature.inputs))
    outputs = _touched(signature.outputs)
    missed, left = 0.0, cache_bytes
    for copies, nbytes in sorted([(1, constants), (2, outputs), (sets, inputs)]):
        held = min(left, copies * nbytes)
        missed += nbytes - held / copies
        left -= held
    return missed


def _touched(specs: tuple[TensorSpec, ...], needed: Mapping[str, int] | None = None) -> int:
    """Bytes of the elements themselves; holes between strided elements need not be read."""
    counts = [spec.numel if needed is None else min(needed.get(spec.name, 0), spec.numel) for spec in specs]
    return sum(count * spec.itemsize for count, spec in zip(counts, specs, strict=True))


def _rate(ceilings: Mapping[str, float], level: str, written_share: float) -> float:
    """The best rate among the measured mixes on either side of this one, in bytes/s."""
    known = [(share, ceilings[f"{mix}/{level}"]) for mix, share in _MIXES.items() if f"{mix}/{level}" in ceilings]
    below = max((share for share, _ in known if share <= written_share), default=0.0)
    above = min((share for share, _ in known if share >= written_share), default=1.0)
    return max((rate for share, rate in known if below <= share <= above), default=0.0)


def _f32_peak(signature: Signature, target: Target, precision: str) -> float:
    """FLOP/s of products of floats: on a matrix unit six short products make one, three under `split` or where one
    operand is short itself, and one where both are."""
    peak = target.ceilings.get("flops/f32", 0.0)
    if not target.matrix_parts(precision):
        return peak
    dtypes = {spec.dtype for spec in (*signature.inputs, *signature.constants)}
    short = not dtypes.isdisjoint(_SHORT)
    if precision == "tf32" or (short and dtypes.isdisjoint(_LONG)):
        return peak * _MATRIX_PEAK
    return peak * _MATRIX_PEAK / (3 if short or precision == "split" else 6)


def _arithmetic_s(flops: Mapping[str, float], target: Target, f32_peak: float) -> float:
    seconds = 0.0
    for dtype, count in flops.items():
        peak = f32_peak if dtype == "f32" else target.ceilings.get(f"flops/{dtype}")
        if peak is None and dtype in ("f16", "bf16"):
            peak = target.ceilings.get("flops/f32", 0.0) * _MATRIX_PEAK
        if peak:
            seconds += count / peak
    return seconds
