"""Normalisations: two passes for mean and variance; what is per row or per channel is a small stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evoforge.lowering.index import floordiv
from evoforge.lowering.ir import Affine, Const, Expr
from evoforge.lowering.operators.builder import Builder, Value, op
from evoforge.lowering.operators.reductions import Rows, mean_of, squares_about
from evoforge.lowering.operators.registry import register
from evoforge.lowering.operators.views import reshaped

__all__: list[str] = []

Index = list[Affine]


def _rstd(b: Builder, squares: Value, count: int, eps: float, t: str) -> Value:
    """1 / √(squares / count + eps)."""

    def body(i: Index, e: dict[str, int]) -> Expr:
        mean = op("div", squares.read(i, e), Const(float(count), t), dtype=t)
        return op("rsqrt", op("add", mean, Const(eps, t), dtype=t), dtype=t)

    return b.map(squares.shape, t, body, "rstd")


def _affine(y: Expr, weight: Expr | None, bias: Expr | None, t: str) -> Expr:
    y = y if weight is None else op("mul", y, weight, dtype=t)
    return y if bias is None else op("add", y, bias, dtype=t)


def _read(value: Value | None, index: Index, e: dict[str, int], t: str) -> Expr | None:
    return None if value is None else value.read(index, e, t)


@register("layer_norm", "native_layer_norm")
def _layer_norm(
    b: Builder,
    x: Value,
    normalized: Sequence[int],
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Any:
    several = "native" in b.origin
    t = b.out_dtype(0 if several else None)
    rows = Rows.of(x, list(range(x.rank - len(normalized), x.rank)))
    mean = mean_of(b, rows, t)
    rstd = _rstd(b, squares_about(b, rows, mean, t), rows.count, eps, t)

    def body(i: Index, e: dict[str, int]) -> Expr:
        outer, inner = rows.outer_of(i), i[x.rank - len(normalized) :]
        gap = op("sub", x.read(i, e, t), mean.read(outer, e), dtype=t)
        unit = op("mul", gap, rstd.read(outer, e), dtype=t)
        return _affine(unit, _read(weight, inner, e, t), _read(bias, inner, e, t), t)

    y = b.map(x.shape, t, body)
    return (y, rows.keepdim(mean, True), rows.keepdim(rstd, True)) if several else y


@register("rms_norm", "_fused_rms_norm")
def _rms_norm(
    b: Builder, x: Value, normalized: Sequence[int], weight: Value | None = None, eps: float | None = None
) -> Any:
    several = "fused" in b.origin
    t = b.out_dtype(0 if several else None)
    eps = eps if eps is not None else 2.0 ** (-52 if t == "f64" else -23)
    rows = Rows.of(x, list(range(x.rank - len(normalized), x.rank)))
    squares = rows.reduce(b, "sum", t, lambda a: op("mul", a, a, dtype=t), "squares")[0]
    rstd = _rstd(b, squares, rows.count, eps, t)

    def body(i: Index, e: dict[str, int]) -> Expr:
        unit = op("mul", x.read(i, e, t), rstd.read(rows.outer_of(i), e), dtype=t)
        return _affine(unit, _read(weight, i[x.rank - len(normalized) :], e, t), None, t)

    y = b.map(x.shape, t, body)
    return (y, rows.keepdim(rstd, True)) if several else y


def _group_norm(
    b: Builder, x: Value, groups: int, weight: Value | None, bias: Value | None, eps: float, t: str
) -> tuple[Value, Value, Value]:
    """Statistics per (sample, group) over (channel in group, space…); the result keeps x's own axes."""
    batch, channels, *space = x.shape
    per = channels // groups
    split = reshaped(x, (batch, groups, per, *space))
    rows = Rows.of(split, list(range(2, split.rank)))
    mean = mean_of(b, rows, t)
    rstd = _rstd(b, squares_about(b, rows, mean, t), rows.count, eps, t)

    def body(i: Index, e: dict[str, int]) -> Expr:
        group = [i[0], floordiv(i[1], per, e)]
        gap = op("sub", x.read(i, e, t), mean.read(group, e), dtype=t)
        unit = op("mul", gap, rstd.read(group, e), dtype=t)
        return _affine(unit, _read(weight, [i[1]], e, t), _read(bias, [i[1]], e, t), t)

    return b.map(x.shape, t, body), mean, rstd


@register("group_norm")
def _group_norm_whole(
    b: Builder,
    x: Value,
    groups: int,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Value:
    return _group_norm(b, x, groups, weight, bias, eps, b.out_dtype())[0]


@register("native_group_norm")
def _native_group_norm(
    b: Builder, x: Value, weight: Value | None, bias: Value | None, n: int, c: int, hw: int, groups: int, eps: float
) -> tuple[Value, Value, Value]:
    return _group_norm(b, x, groups, weight, bias, eps, b.out_dtype(0))


@register("instance_norm")
def _instance_norm(
    b: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value | None,
    var: Value | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    *_: Any,
) -> Value:
    if not use_input_stats and mean is not None and var is not None:
        return _with_statistics(b, x, weight, bias, mean, var, eps, b.out_dtype())
    if mean is not None:
        raise b.refuse("running statistics that it would update (put the model in eval mode)")
    return _group_norm(b, x, x.shape[1], weight, bias, eps, b.out_dtype())[0]


def _with_statistics(
    b: Builder, x: Value, weight: Value | None, bias: Value | None, mean: Value, var: Value, eps: float, t: str
) -> Value:
    """(x − mean) · scale + bias with scale = weight / √(var + eps) per channel, dimension 1."""

    def channel_scale(i: Index, e: dict[str, int]) -> Expr:
        rstd = op("rsqrt", op("add", var.read(i, e, t), Const(eps, t), dtype=t), dtype=t)
        return _affine(rstd, _read(weight, i, e, t), None, t)

    scale = b.map(var.shape, t, channel_scale, "scale")

    def body(i: Index, e: dict[str, int]) -> Expr:
        gap = op("sub", x.read(i, e, t), mean.read([i[1]], e, t), dtype=t)
        return _affine(gap, scale.read([i[1]], e), _read(bias, [i[1]], e, t), t)

    return b.map(x.shape, t, body)


@register("_native_batch_norm_legit_no_training")
def _batch_norm_eval(
    b: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    var: Value,
    momentum: float,
    eps: float,
) -> tuple[Value, Value, Value]:
    t = b.out_dtype(0)
    y = _with_statistics(b, x, weight, bias, mean, var, eps, t)
    empty = b.constant(0.0, t, (0,))
    return y, empty, empty


@register("_native_batch_norm_legit.no_stats")
def _batch_norm_of_batch(
    b: Builder, x: Value, weight: Value | None, bias: Value | None, training: bool, momentum: float, eps: float
) -> tuple[Value, Value, Value]:
    """Statistics of the batch itself, per channel over the other dimensions."""
    t = b.out_dtype(0)
    rows = Rows.of(x, [dim for dim in range(x.rank) if dim != 1])
    mean = mean_of(b, rows, t)
    rstd = _rstd(b, squares_about(b, rows, mean, t), rows.count, eps, t)

    def body(i: Index, e: dict[str, int]) -> Expr:
        channel = [i[1]]
        unit = op("mul", op("sub", x.read(i, e, t), mean.read(channel, e), dtype=t), rstd.read(channel, e), dtype=t)
        return _affine(unit, _read(weight, channel, e, t), _read(bias, channel, e, t), t)

    return b.map(x.shape, t, body), mean, rstd
