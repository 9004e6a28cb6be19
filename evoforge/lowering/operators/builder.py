"""What operator handlers build with: values (views folded into their indices) and stages."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from evoforge.errors import TaskError, UnsupportedError
from evoforge.lowering.index import axis, const, substitute
from evoforge.lowering.ir import Affine, Axis, Cast, Const, Expr, Graph, Load, Op, Stage, Tensor, Where, loads
from evoforge.lowering.stages import row_major

__all__ = [
    "Builder",
    "Value",
    "highest",
    "is_float",
    "is_int",
    "lowest",
    "number",
    "op",
    "short_dtype",
    "where",
    "working",
]

_DTYPES = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int8": "i8", "uint8": "u8",
    "int16": "i16", "int32": "i32", "int64": "i64", "bool": "bool",
}  # fmt: skip


_SHORT = ("f16", "bf16")


def short_dtype(dtype: Any) -> str:
    """The ABI's name of a torch dtype.

    Raises:
        UnsupportedError: complex, quantised and other dtypes outside the ABI.
    """
    name = str(dtype).removeprefix("torch.")
    if name not in _DTYPES:
        raise UnsupportedError(f"expected tensors of dtype {', '.join(_DTYPES)}, got {name}; convert it first")
    return _DTYPES[name]


def working(dtype: str) -> str:
    """What a value is computed and kept in: 16-bit floats in f32, everything else as it is."""
    return "f32" if dtype in _SHORT else dtype


def is_float(dtype: str) -> bool:
    return dtype in ("f32", "f64", "f16", "bf16")


def is_int(dtype: str) -> bool:
    return dtype in ("i8", "u8", "i16", "i32", "i64")


def number(value: float | int | bool, like: str) -> Const:
    """A constant of dtype `like`."""
    return Const(_as_dtype(value, like), like)


def lowest(dtype: str) -> Const:
    """The smallest value; −∞ of floats."""
    if is_float(dtype):
        return Const(-math.inf, dtype)
    return Const(0 if dtype in ("u8", "bool") else -(1 << (int(dtype[1:]) - 1)), dtype)


def highest(dtype: str) -> Const:
    """The largest value; ∞ of floats."""
    if is_float(dtype):
        return Const(math.inf, dtype)
    return Const(1 if dtype == "bool" else 255 if dtype == "u8" else (1 << (int(dtype[1:]) - 1)) - 1, dtype)


def op(name: str, *args: Expr, dtype: str) -> Op:
    return Op(name, args, dtype)


def where(condition: Expr, then: Expr, other: Expr, dtype: str) -> Where:
    return Where(condition, then, other, dtype)


@dataclass(frozen=True)
class Value:
    """A tensor of the PyTorch graph: what its element at (d0, d1, …) is.

    `expr` is a load through folded views, a constant or a position; anything that costs more is a
    stage of its own, so reading a value twice never computes twice. `dtype` is the working dtype.
    """

    shape: tuple[int, ...]
    expr: Expr
    dtype: str

    @property
    def rank(self) -> int:
        return len(self.shape)

    def read(self, index: Sequence[Affine], extents: dict[str, int], dtype: str | None = None) -> Expr:
        """The element at `index` (broadcast on the left and over sizes of 1), cast to `dtype`."""
        own = index[len(index) - self.rank :]
        at = {f"d{dim}": const(0) if self.shape[dim] == 1 else own[dim] for dim in range(self.rank)}
        found: Expr = substitute(self.expr, at, extents)
        if dtype is None or dtype == self.dtype:
            return found
        if isinstance(found, Const):
            return Const(_as_dtype(found.value, dtype), dtype)
        return Cast(found, dtype)

    def viewed(self, shape: Sequence[int], index: Sequence[Affine]) -> Value:
        """The view whose element (d0, d1, …) is this value's element `index`."""
        extents = {f"d{dim}": size for dim, size in enumerate(shape)}
        return Value(tuple(shape), self.read(index, extents), self.dtype)


def _as_dtype(value: float | int | bool, dtype: str) -> float | int | bool:
    if dtype == "bool":
        return bool(value)
    if not is_int(dtype):
        return float(value)
    most = 1 << int(dtype[1:])  # numbers out of range wrap around, as torch's do beside a tensor
    wrapped = int(value) % most
    return wrapped - most if dtype != "u8" and wrapped >= most // 2 else wrapped


Index = list[Affine]


@dataclass
class Builder:
    """Collects tensors and stages while the nodes of an exported graph are walked.

    What an operator gives in a 16-bit type is not rounded to it where inputs or constants are `held` in that type: it
    is theirs by the way of storing them. In another it is, for the model asks for that by name. Where the results of
    doubles are doubles, a float32 in between is as wide (`wide`).
    """

    tensors: dict[str, Tensor] = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)
    node_name: str = ""
    origin: str = ""
    place: Callable[[], str] = str  # `` at file:line: code`` of the node being handled
    meta: Any = None
    given: Any = None  # what torch says about the node's first argument
    held: frozenset[str] = frozenset(_SHORT)
    wide: bool = False
    exact: set[str] = field(default_factory=set)  # tensors that were rounded to the type that the export says
    _names: set[str] = field(default_factory=set)  # of the stages

    # what torch says about the node being handled

    def out_shape(self, position: int | None = None) -> tuple[int, ...]:
        """Shape of the node's result, from the export.

        Raises:
            TaskError: the shape depends on the values of the inputs.
        """
        meta = self.meta if position is None else self.meta[position]
        if not all(isinstance(size, int) for size in meta.shape):
            raise TaskError(
                f"expected shapes that do not depend on the inputs' values, got {tuple(meta.shape)} from "
                f"{self.origin}{self.place()}; "
                "rewrite the model with static shapes (a mask instead of a selection)"
            )
        return tuple(int(size) for size in meta.shape)

    def out_dtype(self, position: int | None = None) -> str:
        """Working dtype of the node's result."""
        meta = self.meta if position is None else self.meta[position]
        return self.working(short_dtype(meta.dtype))

    def working(self, dtype: str) -> str:
        """What values of `dtype` are computed and kept in here."""
        return "f64" if self.wide and is_float(dtype) else working(dtype)

    def refuse(self, what: str) -> UnsupportedError:
        return UnsupportedError(
            f"{self.origin} with {what} is not covered by the lowering{self.place()}; write that part differently"
        )

    # stages

    def map(
        self, shape: Sequence[int], dtype: str, body: Callable[[Index, dict[str, int]], Expr], hint: str = ""
    ) -> Value:
        """out[i0, i1, …] = body(indices, extents)."""
        axes, index, extents = _axes("i", shape)
        return self._stage("map", axes, body(index, extents), [(tuple(shape), dtype)], hint)[0]

    def reduce(
        self,
        shape: Sequence[int],
        reduced: Sequence[int],
        dtype: str,
        monoid: str,
        body: Callable[[Index, Index, dict[str, int]], Expr],
        hint: str = "",
    ) -> list[Value]:
        """outs[i0, …] = monoid over (r0, …) of body(indices, reduction indices, extents)."""
        if not reduced and monoid not in _TWO:
            return [self.map(shape, dtype, lambda index, extents: body(index, [], extents), hint)]
        axes, index, extents = _axes("i", shape)
        reduction, inner, more = _axes("r", reduced)
        extents |= more
        second = {"argmax": "i64", "argmin": "i64"}.get(monoid, dtype)
        results = [(tuple(shape), dtype), (tuple(shape), second)][: 2 if monoid in _TWO else 1]
        return self._stage("reduce", axes, body(index, inner, extents), results, hint, reduction, monoid)

    def sum(
        self,
        shape: Sequence[int],
        reduced: Sequence[int],
        dtype: str,
        body: Callable[[Index, Index, dict[str, int]], Expr],
        hint: str = "",
    ) -> Value:
        return self.reduce(shape, reduced, dtype, "sum", body, hint)[0]

    def scan(self, value: Value, dim: int, dtype: str, monoid: str) -> Value:
        """Running `monoid` along `dim`."""
        outer = [size for at, size in enumerate(value.shape) if at != dim]
        axes, index, extents = _axes("i", outer)
        scanned = Axis("r0", value.shape[dim])
        extents["r0"] = scanned.extent
        full = [*index[:dim], axis("r0"), *index[dim:]]
        order = [*(a.name for a in axes[:dim]), "r0", *(a.name for a in axes[dim:])]
        body = value.read(full, extents, dtype)
        return self._stage("scan", axes, body, [(value.shape, dtype)], "", (scanned,), monoid, tuple(order))[0]

    def _stage(
        self,
        kind: Any,
        axes: tuple[Axis, ...],
        body: Expr,
        results: list[tuple[tuple[int, ...], str]],
        hint: str,
        reduction: tuple[Axis, ...] = (),
        monoid: str | None = None,
        order: tuple[str, ...] = (),
    ) -> list[Value]:
        values, outputs = [], []
        for shape, dtype in results:
            name = f"tmp{len(self.tensors)}"
            self.tensors[name] = Tensor(name, shape, row_major(shape), dtype, "tmp")
            outputs.append(name)
            values.append(self.value(name))
        base = self.node_name + (f"_{hint}" if hint else "")
        name = next(n for k in count() if (n := base if k == 0 else f"{base}_{k}") not in self._names)
        self._enter(Stage(name, kind, axes, body, tuple(outputs), reduction, monoid, order, origin=self.origin))
        return values

    def _enter(self, stage: Stage) -> None:
        self.stages.append(stage)
        self._names.add(stage.name)

    def rounded(self, made: Any, meta: Any) -> Any:
        """What a handler made, rounded where it is of a 16-bit type that is not `held`."""
        if isinstance(made, tuple | list):
            return tuple(self.rounded(*pair) for pair in zip(made, meta, strict=False))
        dtype = str(getattr(meta, "dtype", "")).removeprefix("torch.")
        short = _DTYPES.get(dtype)
        if not isinstance(made, Value) or short not in _SHORT or short in self.held:
            return made
        if isinstance(made.expr, Load) and made.expr.tensor in self.exact:  # a view of such
            return made
        t = made.dtype
        found = self.map(made.shape, t, lambda index, extents: op(f"as_{short}", made.read(index, extents), dtype=t))
        self.exact |= {load.tensor for load in loads(found.expr)}
        return found

    def output(self, name: str, value: Value, dtype: str) -> None:
        """A map stage that copies `value` to the output `name`, rounded to its dtype."""
        axes, index, extents = _axes("i", value.shape)
        body = value.read(index, extents)
        self.tensors[name] = Tensor(name, value.shape, row_major(value.shape), dtype, "out")
        copied = body if value.dtype == dtype else Cast(body, dtype)
        self._enter(Stage(f"store_{name}", "map", axes, copied, (name,), origin="copy"))

    def value(self, tensor: str) -> Value:
        """A whole tensor as a value; 16-bit floats are read as f32."""
        t = self.tensors[tensor]
        index = tuple(const(0) if size == 1 else axis(f"d{dim}") for dim, size in enumerate(t.shape))
        load: Expr = Load(tensor, index)
        dtype = self.working(t.dtype)
        return Value(t.shape, load if dtype == t.dtype else Cast(load, dtype), dtype)

    def constant(self, value: float | int | bool, dtype: str, shape: Sequence[int] = ()) -> Value:
        return Value(tuple(shape), Const(_as_dtype(value, dtype), dtype), dtype)

    # pointwise operators

    def pointwise(
        self, formula: Callable[..., Expr], *args: Value | float | int | bool, dtype: str | None = None, hint: str = ""
    ) -> Value:
        """One map stage of the node's result shape; arguments broadcast and are cast to `dtype`.

        `dtype` None is the result's dtype; comparisons pass the dtype to compare in.
        """
        result = self.out_dtype()
        inner = dtype or result

        def body(index: Index, extents: dict[str, int]) -> Expr:
            return formula(*(self._operand(arg, index, extents, inner) for arg in args))

        return self.map(self.out_shape(), result, body, hint)

    def _operand(self, arg: Value | float | int | bool, index: Index, extents: dict[str, int], dtype: str) -> Expr:
        if isinstance(arg, Value):
            return arg.read(index, extents, dtype)
        return Const(_as_dtype(arg, dtype), dtype)

    def graph(self) -> Graph:
        return Graph(dict(self.tensors), tuple(self.stages))


_TWO = ("argmax", "argmin", "welford", "maxsum")


def _axes(prefix: str, shape: Sequence[int]) -> tuple[tuple[Axis, ...], Index, dict[str, int]]:
    axes = tuple(Axis(f"{prefix}{at}", int(size)) for at, size in enumerate(shape))
    index = [const(0) if a.extent == 1 else axis(a.name) for a in axes]
    return axes, index, {a.name: a.extent for a in axes}
