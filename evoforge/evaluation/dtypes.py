"""torch's names of the element types, without importing torch."""

from __future__ import annotations

__all__ = ["DTYPE_NAMES", "SHORT_FLOATS", "scale_dtype", "short_dtype"]

DTYPE_NAMES = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int8": "i8", "uint8": "u8",
    "int16": "i16", "int32": "i32", "int64": "i64", "bool": "bool",
}  # fmt: skip
"""torch's dtype name → the short name of `evoforge.core.DTYPES`."""

SHORT_FLOATS = {"f16": (10, -14), "bf16": (7, -126)}
"""Of types that are held to an ulp: bits behind the point, exponent of the smallest normal number."""


def short_dtype(name: str) -> str | None:
    """``f32`` for ``f32``, ``float32`` and ``torch.float32``; None for what is not covered."""
    bare = name.removeprefix("torch.")
    return DTYPE_NAMES.get(bare, bare if bare in DTYPE_NAMES.values() else None)


def scale_dtype(dtype: str) -> str:
    """What an output's dᵢ are kept in: in single precision those of large double precision would be infinite."""
    return "f64" if dtype == "f64" else "f32"
