"""What is to be computed: tensors, signatures, workloads, tasks."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evoforge.errors import TaskError

__all__ = ["DTYPES", "Signature", "Task", "TensorSpec", "Tolerance", "Workload"]

DTYPES: dict[str, int] = {
    "f32": 4, "f64": 8, "f16": 2, "bf16": 2, "i8": 1, "u8": 1, "i16": 2, "i32": 4, "i64": 8, "bool": 1,
}  # fmt: skip
"""Short dtype name → bytes per element; the position is the code in the C ABI (evoforge.h; f32 = 0)."""


@dataclass(frozen=True)
class TensorSpec:
    """One tensor of a signature: sizes and strides in elements, strides non-negative."""

    name: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise TaskError(f"tensor {self.name} must have a dtype of {', '.join(DTYPES)}, got {self.dtype}")
        if len(self.shape) != len(self.stride) or len(self.shape) > 8:
            raise TaskError(f"tensor {self.name} must have at most 8 dimensions, got shape {self.shape}")

    @property
    def itemsize(self) -> int:
        return DTYPES[self.dtype]

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes from the first to the last element, holes included."""
        if self.numel == 0:
            return 0
        span = 1 + sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))
        return span * self.itemsize

    @property
    def is_float(self) -> bool:
        return self.dtype in ("f32", "f64", "f16", "bf16")


@dataclass(frozen=True)
class Signature:
    """The tensors of one workload, in the ABI's order: in0…, cst0…, out0…"""

    inputs: tuple[TensorSpec, ...]
    constants: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    @property
    def input_bytes(self) -> int:
        return sum(spec.nbytes for spec in self.inputs)

    @property
    def output_bytes(self) -> int:
        return sum(spec.nbytes for spec in self.outputs)

    @property
    def constant_bytes(self) -> int:
        return sum(spec.nbytes for spec in self.constants)

    def to_json(self) -> dict[str, Any]:
        def rows(specs: tuple[TensorSpec, ...]) -> list[list[Any]]:
            return [[spec.name, list(spec.shape), list(spec.stride), spec.dtype] for spec in specs]

        return {"inputs": rows(self.inputs), "constants": rows(self.constants), "outputs": rows(self.outputs)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Signature:
        def specs(rows: list[list[Any]]) -> tuple[TensorSpec, ...]:
            return tuple(TensorSpec(name, tuple(shape), tuple(step), dtype) for name, shape, step, dtype in rows)

        return cls(specs(data["inputs"]), specs(data["constants"]), specs(data["outputs"]))


@dataclass(frozen=True)
class Tolerance:
    """How far a correct kernel may be from the fp64 reference (docs/tolerance.md).

    `nonfinite`: NaN and ±Inf must ``match`` the reference by position, or be nowhere (``forbid``). A
    task that leaves it ``unspecified`` is judged by position too, but never on infinite inputs.
    """

    precision: str = "ieee"
    nonfinite: str = "unspecified"
    factor: float = 512.0

    def __post_init__(self) -> None:
        if self.precision not in ("ieee", "split", "tf32"):
            raise TaskError(f"TOLERANCE['precision'] must be ieee, split or tf32, got {self.precision!r}")
        if self.nonfinite not in ("unspecified", "match", "forbid"):
            raise TaskError(f"TOLERANCE['nonfinite'] must be match or forbid, got {self.nonfinite!r}")
        if not 0 < self.factor <= 512:
            raise TaskError(f"TOLERANCE['factor'] may only fall: it must be in (0, 512], got {self.factor!r}")


@dataclass(frozen=True)
class Workload:
    """One concrete set of shapes and dtypes: overrides of the task module's constants."""

    name: str
    overrides: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """A PyTorch reference with its workloads and tolerance.

    `source` is a KernelBench-format module. For `pkg.mod:Class` it is a small module of that format
    that imports the user's class, and `entry` is what the user typed. `root` is the folder put first
    on the import path of the reference process (the task file's folder, or the working directory).
    """

    name: str
    source: str
    workloads: tuple[Workload, ...]
    tolerance: Tolerance = Tolerance()
    overrides: Mapping[str, Any] = field(default_factory=dict)
    path: str | None = None
    entry: str | None = None
    root: str | None = None
    imported_source: str = ""

    @property
    def id(self) -> str:
        """sha256 over everything that changes what is computed; paths do not."""
        body = {
            "source": self.source,
            "imported": self.imported_source,
            "overrides": dict(self.overrides),
            "workloads": [[workload.name, dict(workload.overrides)] for workload in self.workloads],
            "tolerance": [self.tolerance.precision, self.tolerance.nonfinite, self.tolerance.factor],
        }
        return hashlib.sha256(json.dumps(body, sort_keys=True, default=str).encode()).hexdigest()
