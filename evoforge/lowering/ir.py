"""The loop-nest representation: what is computed, without saying how.

A `Graph` is a list of `Stage`s in topological order over named `Tensor`s. A stage defines every
element of its output tensors by an `Expr` over loop axes, in the manner of define-by-run loops
(TorchInductor's inner functions) with the split of computation from schedule of Halide and TVM.
Views do not exist here: they are folded into the indices of the loads that read through them.
Everything is JSON (`to_json` / `from_json`), because graphs are captured in a process of their own.

    Expr   Const | Position | Load | Op | Cast | Where
    Index  Affine = Σ cᵢ · atomᵢ + c, atom = axis name | FloorDiv | Mod | Indirect
    Stage  map | reduce (monoid) | scan (monoid)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from typing import Any, Literal

__all__ = [
    "MONOIDS",
    "OPS",
    "Affine",
    "Atom",
    "Axis",
    "Cast",
    "Const",
    "Expr",
    "FloorDiv",
    "Graph",
    "Guard",
    "Indirect",
    "Load",
    "Mod",
    "Op",
    "Position",
    "Stage",
    "Tensor",
    "Where",
    "from_json",
    "loads",
    "nodes",
    "parts",
    "rewrite",
    "to_json",
]

OPS = {
    # unary
    "neg": 1, "abs": 1, "sqrt": 1, "rsqrt": 1, "reciprocal": 1, "exp": 1, "expm1": 1, "exp2": 1,
    "log": 1, "log1p": 1, "log2": 1, "sin": 1, "cos": 1, "tan": 1, "asin": 1, "acos": 1, "atan": 1,
    "sinh": 1, "cosh": 1, "tanh": 1, "erf": 1, "erfc": 1, "hypot": 2, "sigmoid": 1, "floor": 1, "ceil": 1, "round": 1,
    "trunc": 1, "sign": 1, "not": 1, "isnan": 1, "isinf": 1, "rounded": 1,
    "as_f16": 1, "as_bf16": 1, "lgamma": 1,
    # binary (round is to even; floordiv and mod follow Python's signs, fmod C's)
    "add": 2, "sub": 2, "mul": 2, "div": 2, "floordiv": 2, "mod": 2, "fmod": 2, "pow": 2, "max": 2,
    "min": 2, "atan2": 2, "eq": 2, "ne": 2, "lt": 2, "le": 2, "gt": 2, "ge": 2, "and": 2, "or": 2,
    "xor": 2, "shl": 2, "shr": 2, "copysign": 2,
}  # fmt: skip
"""Operator name → number of arguments. ``max`` and ``min`` propagate NaN as torch does; ``rounded`` is its
argument, which no compiler reassociates with what comes of it; ``as_f16`` and ``as_bf16`` are the nearest number
of that type, in the dtype of the argument."""

MONOIDS = {
    "sum": 1, "prod": 1, "max": 1, "min": 1, "logsum": 1, "argmax": 2, "argmin": 2, "welford": 2, "maxsum": 2,
}  # fmt: skip
"""Monoid → number of outputs. logsum (of scans only) is log Σ exp x, argmax/argmin give (value,
flattened position over the reduction axes; first on ties, NaN wins), welford (mean, sum of squared
deviations), maxsum (m = max x, Σ exp(x − m))."""


@dataclass(frozen=True)
class Axis:
    name: str
    extent: int


@dataclass(frozen=True)
class Affine:
    """Σ coefficient · atom + const; atoms are distinct, coefficients non-zero."""

    terms: tuple[tuple[int, Atom], ...] = ()
    const: int = 0


@dataclass(frozen=True)
class FloorDiv:
    arg: Affine
    by: int


@dataclass(frozen=True)
class Mod:
    arg: Affine
    by: int


@dataclass(frozen=True)
class Indirect:
    """An index read from memory (embedding, gather); out of range is the kernel's own fault."""

    value: Expr


Atom = str | FloorDiv | Mod | Indirect


@dataclass(frozen=True)
class Guard:
    """Holds where `arg` >= 0 (`kind` "ge0") or `arg` % `modulus` == 0 (`kind` "divides")."""

    arg: Affine
    kind: Literal["ge0", "divides"] = "ge0"
    modulus: int = 1


@dataclass(frozen=True)
class Const:
    """`sizes`: the same value as a product of sizes in C++, where it differs between workloads."""

    value: float | int | bool
    dtype: str
    sizes: str = ""


@dataclass(frozen=True)
class Position:
    """The value of an index expression (arange, one_hot, masks)."""

    index: Affine
    dtype: str


@dataclass(frozen=True)
class Load:
    """Element `index` (one Affine per dimension) of `tensor`; `other` where a guard fails."""

    tensor: str
    index: tuple[Affine, ...]
    guards: tuple[Guard, ...] = ()
    other: float = 0.0


@dataclass(frozen=True)
class Op:
    """`dtype` is that of the result and, except for comparisons, of every argument."""

    name: str
    args: tuple[Expr, ...]
    dtype: str

    def __post_init__(self) -> None:
        if OPS.get(self.name) != len(self.args):
            raise ValueError(f"expected an operator of as many arguments, got {self.name} of {len(self.args)}")


@dataclass(frozen=True)
class Cast:
    arg: Expr
    dtype: str


@dataclass(frozen=True)
class Where:
    condition: Expr
    then: Expr
    other: Expr
    dtype: str


Expr = Const | Position | Load | Op | Cast | Where


@dataclass(frozen=True)
class Tensor:
    """`kind`: in, cst, out or tmp. Strides in elements; tmp are contiguous, out too unless torch lays them out anew."""

    name: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    kind: Literal["in", "cst", "out", "tmp"]

    @property
    def numel(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Stage:
    """Defines every element of its outputs.

    map: ``out[axes] = body``. reduce: ``outs[axes] = monoid over reduction of body``. scan:
    ``out[axes, scan axis]``, with the scanned axis as the one entry of `reduction`; the output's
    dimensions are ordered by `order` then. The shape of every output is the extents of `axes` in
    order (scan: of `order`, names of axes and the reduction axis in output order).
    The body's dtype is that of the first output. A stage may load what an earlier stage wrote, outputs
    included.
    `outputs` entries may be None where a monoid's output is not used.
    `origin` names the aten operators it came from, for comments. What is `apart` shares no loops with those that read
    it: it lies in an order that is good for making it.
    """

    name: str
    kind: Literal["map", "reduce", "scan"]
    axes: tuple[Axis, ...]
    body: Expr
    outputs: tuple[str | None, ...]
    reduction: tuple[Axis, ...] = ()
    monoid: str | None = None
    order: tuple[str, ...] = ()
    origin: str = ""
    apart: bool = False

    @property
    def written(self) -> tuple[Axis, ...]:
        """The axes of the outputs, in the order of their dimensions."""
        by_name = {a.name: a for a in (*self.axes, *self.reduction)}
        return tuple(by_name[name] for name in self.order) if self.order else self.axes

    def __post_init__(self) -> None:
        if (self.kind == "map") != (self.monoid is None):
            raise ValueError(f"stage {self.name}: a map has no monoid, a reduce or scan has one")
        if self.monoid is not None and len(self.outputs) != MONOIDS[self.monoid]:
            raise ValueError(f"stage {self.name}: monoid {self.monoid} has {MONOIDS[self.monoid]} outputs")


@dataclass(frozen=True)
class Graph:
    """The whole computation of one workload. Inputs in0…, constants cst0…, outputs out0…"""

    tensors: Mapping[str, Tensor]
    stages: tuple[Stage, ...]

    def names(self, kind: str) -> list[str]:
        """Names of the tensors of one kind, in ABI order."""
        found = [tensor.name for tensor in self.tensors.values() if tensor.kind == kind]
        return sorted(found, key=lambda name: int(name.lstrip("abcdefghijklmnopqrstuvwxyz") or 0))

    @property
    def unfused(self) -> int:
        """Temporaries at least half as large as the largest input or output: what fusion saves."""
        largest = max((tensor.numel for tensor in self.tensors.values() if tensor.kind != "tmp"), default=1)
        return sum(tensor.kind == "tmp" and 2 * tensor.numel >= largest for tensor in self.tensors.values())

    def producer(self, tensor: str) -> Stage | None:
        """The stage that writes `tensor`; None for inputs and constants."""
        return self._producers.get(tensor)

    @cached_property
    def _producers(self) -> dict[str, Stage]:
        return {out: stage for stage in self.stages for out in stage.outputs if out}

    @cached_property
    def by_name(self) -> Mapping[str, Stage]:
        """The stages by their names."""
        return {stage.name: stage for stage in self.stages}


def parts(node: Any) -> tuple[Any, ...]:
    """The fields of an expression or index in their order; none of anything else."""
    return tuple([getattr(node, name) for name in _PARTS.get(type(node), ())])


def rewrite(expr: Any, visit: Callable[[Any], Any]) -> Any:
    """Rebuilds an expression or index bottom-up; `visit` maps every node to its replacement."""
    if isinstance(expr, tuple):
        return tuple(rewrite(item, visit) for item in expr)
    if type(expr) in _PARTS:
        return visit(type(expr)(*[rewrite(part, visit) for part in parts(expr)]))
    return expr


def nodes(expr: Any) -> list[Any]:
    """Every node of an expression or index, bottom-up."""
    found: list[Any] = []
    _collect(expr, found)
    return found


def _collect(expr: Any, found: list[Any]) -> None:
    if isinstance(expr, tuple):
        for item in expr:
            _collect(item, found)
    elif type(expr) in _PARTS:
        for name in _PARTS[type(expr)]:
            _collect(getattr(expr, name), found)
        found.append(expr)


def loads(expr: Any) -> list[Load]:
    """Every load of an expression, in reading order, those inside indirect indices after their own."""
    found: list[Load] = []
    _collect_loads(expr, found)
    return found


def _collect_loads(expr: Any, found: list[Load]) -> None:
    if isinstance(expr, tuple):
        for item in expr:
            _collect_loads(item, found)
    else:
        if isinstance(expr, Load):
            found.append(expr)
        for name in _PARTS.get(type(expr), ()):
            _collect_loads(getattr(expr, name), found)


_TYPES: dict[str, type[Any]] = {
    cls.__name__: cls
    for cls in (
        Axis,
        Affine,
        FloorDiv,
        Mod,
        Indirect,
        Guard,
        Const,
        Position,
        Load,
        Op,
        Cast,
        Where,
        Tensor,
        Stage,
        Graph,
    )
}


_PARTS: dict[type[Any], tuple[str, ...]] = {
    # looked up a million times a minute, where asking a dataclass takes ten times as long
    cls: tuple(f.name for f in fields(cls))
    for cls in (Axis, Affine, FloorDiv, Mod, Indirect, Guard, Const, Position, Load, Op, Cast, Where)
}


_PASSED = ("$", "reverse", "exclusive")  # the last two, always false, are of stages that earlier versions stored


def to_json(node: Any) -> Any:
    """Dataclasses as ``{"$": type, field: …}``, tuples as lists; non-finite floats as strings."""
    if is_dataclass(node) and not isinstance(node, type):
        return {"$": type(node).__name__, **{f.name: to_json(getattr(node, f.name)) for f in fields(node)}}
    if isinstance(node, Mapping):
        return {str(key): to_json(value) for key, value in node.items()}
    if isinstance(node, tuple | list):
        return [to_json(item) for item in node]
    if isinstance(node, float) and not math.isfinite(node):
        return {"$": "float", "value": repr(node)}
    return node


def from_json(data: Any) -> Any:
    """The inverse of `to_json`; lists come back as tuples."""
    if isinstance(data, list):
        return tuple(from_json(item) for item in data)
    if isinstance(data, dict):
        kind = data.get("$")
        if kind == "float":
            return float(data["value"])
        if kind is None:
            return {key: from_json(value) for key, value in data.items()}
        return _TYPES[kind](**{key: from_json(value) for key, value in data.items() if key not in _PASSED})
    return data
