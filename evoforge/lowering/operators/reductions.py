"""Reductions over any dimensions, the softmax family and the statistics."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from evoforge.lowering.index import const
from evoforge.lowering.ir import Affine, Cast, Const, Expr
from evoforge.lowering.operators.builder import Builder, Value, op, where
from evoforge.lowering.operators.registry import register
from evoforge.lowering.operators.views import reshaped

__all__ = ["Rows", "mean_of", "softmax_of", "squares_about"]

Dims = Sequence[int] | int | None


@dataclass(frozen=True)
class Rows:
    """A value seen as outer dimensions × reduced dimensions.

    `kept` and `gone` are the dimensions' positions, in order. Results of reductions have the
    shape `outer`; `spread` reads such a result beside an element of the whole value.
    """

    value: Value
    gone: tuple[int, ...]

    @classmethod
    def of(cls, value: Value, dims: Dims) -> Rows:
        """`dims` None or empty means all dimensions."""
        if dims is None or (not isinstance(dims, int) and len(dims) == 0):
            return cls(value, tuple(range(value.rank)))
        wanted = (dims,) if isinstance(dims, int) else dims
        return cls(value, tuple(sorted({dim % value.rank for dim in wanted} if value.rank else set())))

    @property
    def kept(self) -> tuple[int, ...]:
        return tuple(dim for dim in range(self.value.rank) if dim not in self.gone)

    @property
    def outer(self) -> tuple[int, ...]:
        return tuple(self.value.shape[dim] for dim in self.kept)

    @property
    def inner(self) -> tuple[int, ...]:
        return tuple(self.value.shape[dim] for dim in self.gone)

    @property
    def count(self) -> int:
        return math.prod(self.inner)

    def at(self, index: Sequence[Affine], inner: Sequence[Affine]) -> list[Affine]:
        """The value's own index from outer and reduced indices."""
        full = [const(0)] * self.value.rank
        for dim, one in zip(self.kept, index, strict=True):
            full[dim] = one
        for dim, one in zip(self.gone, inner, strict=True):
            full[dim] = one
        return full

    def outer_of(self, index: Sequence[Affine]) -> list[Affine]:
        return [index[dim] for dim in self.kept]

    def keepdim(self, result: Value, keep: bool) -> Value:
        if not keep:
            return result
        return reshaped(result, tuple(1 if dim in self.gone else size for dim, size in enumerate(self.value.shape)))

    def reduce(
        self,
        b: Builder,
        monoid: str,
        dtype: str,
        body: Callable[[Expr], Expr] = lambda x: x,
        hint: str = "",
        read_as: str | None = None,
    ) -> list[Value]:
        """Reduces `body` of the elements, read in `read_as` (default `dtype`)."""
        return b.reduce(
            self.outer,
            self.inner,
            dtype,
            monoid,
            lambda i, r, extents: body(self.value.read(self.at(i, r), extents, read_as or dtype)),
            hint,
        )


def _number(value: float, t: str) -> Const:
    return Const(value, t)


# plain monoids


@register("sum", "sum.dim_IntList", "prod", "prod.dim_int", "amax", "amin", "max", "min", "any", "any.dim", "any.dims",
          "all", "all.dim", "all.dims")  # fmt: skip
def _reduce(b: Builder, x: Value, dims: Dims = None, keepdim: bool = False, **_: Any) -> Value:
    """sum, prod, max, min; any and all are max and min of booleans. In the result's dtype."""
    name = b.origin.split(".")[1]
    monoid = {"amax": "max", "amin": "min", "any": "max", "all": "min"}.get(name, name)
    rows = Rows.of(x, dims)
    t = b.out_dtype()
    read_as = "bool" if name in ("any", "all") else t
    return rows.keepdim(rows.reduce(b, monoid, t, read_as=read_as)[0], keepdim)


@register("mean", "mean.dim")
def _mean(b: Builder, x: Value, dims: Dims = None, keepdim: bool = False, **_: Any) -> Value:
    rows = Rows.of(x, dims)
    return rows.keepdim(mean_of(b, rows, b.out_dtype(), ""), keepdim)


def mean_of(b: Builder, rows: Rows, t: str, hint: str = "mean") -> Value:
    """Two stages: the sum, then its quotient by the count."""
    total = rows.reduce(b, "sum", t, hint="sum")[0]
    return _divided(b, total, rows.count, t, hint)


def _divided(b: Builder, total: Value, by: float, t: str, hint: str) -> Value:
    """By 0 as well: an empty mean is 0 / 0, a spread without degrees of freedom infinite."""
    at = float(by)
    return b.map(total.shape, t, lambda i, extents: op("div", total.read(i, extents), _number(at, t), dtype=t), hint)


@register("max.dim", "min.dim")
def _with_indices(b: Builder, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    rows = Rows.of(x, dim)
    monoid = "argmax" if "max" in b.origin else "argmin"
    best, where_ = rows.reduce(b, monoid, b.out_dtype(0))
    return rows.keepdim(best, keepdim), rows.keepdim(where_, keepdim)


@register("argmax", "argmin")
def _arg(b: Builder, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    rows = Rows.of(x, dim)
    monoid = "argmax" if "max" in b.origin else "argmin"
    return rows.keepdim(rows.reduce(b, monoid, x.dtype)[1], keepdim)


@register("count_nonzero", "count_nonzero.dim_IntList")
def _count_nonzero(b: Builder, x: Value, dims: Dims = None) -> Value:
    rows = Rows.of(x, dims)
    return rows.reduce(b, "sum", "i64", lambda a: Cast(a, "i64"), read_as="bool")[0]


# norms of vectors and sums of exponentials


@register("linalg_vector_norm")
def _vector_norm(b: Builder, x: Value, order: float = 2, dims: Dims = None, keepdim: bool = False, **_: Any) -> Value:
    rows, t = Rows.of(x, dims), b.out_dtype()
    if order == 2:
        total = rows.reduce(b, "sum", t, lambda a: op("mul", a, a, dtype=t), "sum")[0]
        norm = b.map(total.shape, t, lambda i, e: op("sqrt", total.read(i, e), dtype=t))
    elif order in (1, math.inf, -math.inf):
        monoid = {1: "sum", math.inf: "max"}.get(order, "min")
        norm = rows.reduce(b, monoid, t, lambda a: op("abs", a, dtype=t))[0]
    elif order == 0:
        norm = rows.reduce(b, "sum", t, lambda a: _one_if_nonzero(a, t))[0]
    else:
        total = rows.reduce(b, "sum", t, lambda a: _power(op("abs", a, dtype=t), order, t), "sum")[0]
        norm = b.map(total.shape, t, lambda i, e: _power(total.read(i, e), 1.0 / order, t))
    return rows.keepdim(norm, keepdim)


def _one_if_nonzero(a: Expr, t: str) -> Expr:
    return where(op("ne", a, _number(0.0, t), dtype="bool"), _number(1.0, t), _number(0.0, t), t)


def _power(a: Expr, exponent: float, t: str) -> Expr:
    return op("pow", a, _number(float(exponent), t), dtype=t)


@register("logsumexp")
def _logsumexp(b: Builder, x: Value, dims: Dims, keepdim: bool = False) -> Value:
    """max; a finite stand-in for it (0 where it is infinite); sum of exp; log + max."""
    rows, t = Rows.of(x, dims), b.out_dtype()
    top = rows.reduce(b, "max", t, hint="max")[0]

    def finite(i: list[Affine], e: dict[str, int]) -> Expr:
        m = top.read(i, e)
        return where(op("isinf", m, dtype="bool"), _number(0.0, t), m, t)

    base = b.map(rows.outer, t, finite, "base")
    total = _sum_exp(b, rows, base, t)

    def result(i: list[Affine], e: dict[str, int]) -> Expr:
        return op("add", op("log", total.read(i, e), dtype=t), base.read(i, e), dtype=t)

    return rows.keepdim(b.map(rows.outer, t, result), keepdim)


def _sum_exp(b: Builder, rows: Rows, base: Value, t: str) -> Value:
    def body(i: list[Affine], r: list[Affine], e: dict[str, int]) -> Expr:
        x = rows.value.read(rows.at(i, r), e, t)
        return op("exp", op("sub", x, base.read(i, e), dtype=t), dtype=t)

    return b.sum(rows.outer, rows.inner, t, body, "sum")


@register("_softmax", "softmax.int", "_safe_softmax")
def _softmax(b: Builder, x: Value, dim: int, *_: Any, **__: Any) -> Value:
    return softmax_of(b, x, dim, b.out_dtype(), safe="safe" in b.origin)


def softmax_of(b: Builder, x: Value, dim: int, t: str, safe: bool = False) -> Value:
    """max; map exp(x − max); sum; map quotient. `safe`: a row of −inf gives zeros instead of NaN."""
    rows = Rows.of(x, dim)
    top = rows.reduce(b, "max", t, hint="max")[0]

    def exponential(i: list[Affine], e: dict[str, int]) -> Expr:
        m = top.read(rows.outer_of(i), e)
        if safe:
            m = where(op("eq", m, _number(-math.inf, t), dtype="bool"), _number(0.0, t), m, t)
        return op("exp", op("sub", x.read(i, e, t), m, dtype=t), dtype=t)

    exps = b.map(x.shape, t, exponential, "exp")
    total = Rows(exps, rows.gone).reduce(b, "sum", t, hint="sum")[0]

    def quotient(i: list[Affine], e: dict[str, int]) -> Expr:
        s = total.read(rows.outer_of(i), e)
        if safe:
            s = where(op("eq", s, _number(0.0, t), dtype="bool"), _number(1.0, t), s, t)
        return op("div", exps.read(i, e), s, dtype=t)

    return b.map(x.shape, t, quotient)


@register("_log_softmax", "log_softmax.int")
def _log_softmax(b: Builder, x: Value, dim: int, *_: Any, **__: Any) -> Value:
    """max; sum of exp(x − max); its log; map (x − max) − log: x − (max + log) loses what a confident row has near 0."""
    rows, t = Rows.of(x, dim), b.out_dtype()
    top = rows.reduce(b, "max", t, hint="max")[0]
    total = _sum_exp(b, rows, top, t)
    log = b.map(rows.outer, t, lambda i, e: op("log", total.read(i, e), dtype=t), "log")

    def result(i: list[Affine], e: dict[str, int]) -> Expr:
        outer = rows.outer_of(i)
        shifted = op("rounded", op("sub", x.read(i, e, t), top.read(outer, e), dtype=t), dtype=t)
        return op("sub", shifted, log.read(outer, e), dtype=t)

    return b.map(x.shape, t, result)


# variance


_FAR, _LEAST = 2.0**64, 2.0**-64


def squares_about(b: Builder, rows: Rows, mean: Value, t: str, scale: float = 1.0, hint: str = "squares") -> Value:
    """Σ (scale · (x − mean))² over the rows."""

    def body(i: list[Affine], r: list[Affine], e: dict[str, int]) -> Expr:
        gap = op("sub", rows.value.read(rows.at(i, r), e, t), mean.read(i, e), dtype=t)
        gap = gap if scale == 1 else op("rounded", op("mul", gap, _number(scale, t), dtype=t), dtype=t)
        return op("mul", gap, gap, dtype=t)

    return b.sum(rows.outer, rows.inner, t, body, hint)


def _deviation(b: Builder, rows: Rows, mean: Value, variance: Value, by: float, t: str) -> Value:
    """√ variance; where its squares would vanish in single precision, from squares of larger numbers (torch adds in
    double), as Blue's norm does (ACM TOMS 4, 1978)."""
    if t == "f64":
        return b.map(rows.outer, t, lambda i, e: op("sqrt", variance.read(i, e), dtype=t))
    magnified = _divided(b, squares_about(b, rows, mean, t, _FAR, "magnified"), by, t, "magnified_var")

    def root(i: list[Affine], e: dict[str, int]) -> Expr:
        plain, large = variance.read(i, e), op("sqrt", magnified.read(i, e), dtype=t)
        vanishes = op("lt", plain, _number(_LEAST, t), dtype="bool")
        small = op("mul", large, _number(1 / _FAR, t), dtype=t)
        return where(vanishes, small, op("sqrt", plain, dtype=t), t)

    return b.map(rows.outer, t, root)


@register("var.correction", "var.dim", "var", "std.correction", "std.dim", "std", "var_mean.correction", "var_mean.dim",
          "var_mean", "std_mean.correction", "std_mean.dim", "std_mean")  # fmt: skip
def _variance(b: Builder, x: Value, *args: Any, **names: Any) -> Any:
    """Two passes: the mean, then Σ (x − mean)² / (n − correction)."""
    dims, correction, keepdim = _variance_arguments(b.origin, args, names)
    kind = b.origin.split(".")[1]
    both = kind.endswith("_mean")
    t, rows = b.out_dtype(0 if both else None), Rows.of(x, dims)
    mean = mean_of(b, rows, t)
    squares = squares_about(b, rows, mean, t)
    by = max(rows.count - correction, 0)
    spread = _divided(b, squares, by, t, "" if kind.startswith("var") else "var")
    if kind.startswith("std"):
        spread = _deviation(b, rows, mean, spread, by, t)
    spread = rows.keepdim(spread, keepdim)
    return (spread, rows.keepdim(mean, keepdim)) if both else spread


def _variance_arguments(origin: str, args: Sequence[Any], names: dict[str, Any]) -> tuple[Dims, float, bool]:
    overload = origin.split(".")[2]
    if overload == "correction":
        dims = args[0] if args else names.get("dim")
        correction = names.get("correction")
        return dims, 1 if correction is None else correction, names.get("keepdim", False)
    if overload == "dim":
        unbiased = args[1] if len(args) > 1 else names.get("unbiased", True)
        return args[0], int(unbiased), args[2] if len(args) > 2 else names.get("keepdim", False)
    return None, int(args[0] if args else names.get("unbiased", True)), False
