"""Elementwise operators of one tensor that are a formula: activations, clamps, inverse hyperbolics."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from evoforge.lowering.index import axis, const
from evoforge.lowering.ir import Expr
from evoforge.lowering.operators.builder import Builder, Value, number, op, where
from evoforge.lowering.operators.registry import register

__all__: list[str] = []

Number = float | int | bool
Arg = Value | Number
_HALF = math.sqrt(0.5)
_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946

Formula = Callable[[Expr, str], Expr]


def _simple(*names: str) -> Callable[[Formula], Formula]:
    """Registers a formula of one tensor and its working dtype."""

    def enter(formula: Formula) -> Formula:
        def handle(b: Builder, x: Value, **_: Any) -> Value:
            dtype = b.out_dtype()
            return b.pointwise(lambda a: formula(a, dtype), x)

        register(*names)(handle)
        return formula

    return enter


@_simple("relu")
def _relu(x: Expr, t: str) -> Expr:
    return op("max", x, number(0, t), dtype=t)


@_simple("relu6")
def _relu6(x: Expr, t: str) -> Expr:
    return op("min", _relu(x, t), number(6.0, t), dtype=t)


@_simple("silu")
def _silu(x: Expr, t: str) -> Expr:
    return op("mul", x, op("sigmoid", x, dtype=t), dtype=t)


@_simple("square")
def _square(x: Expr, t: str) -> Expr:
    return op("mul", x, x, dtype=t)


@_simple("hardsigmoid")
def _hardsigmoid(x: Expr, t: str) -> Expr:
    return op("div", _relu6(op("add", x, number(3.0, t), dtype=t), t), number(6.0, t), dtype=t)


@_simple("hardswish")
def _hardswish(x: Expr, t: str) -> Expr:
    return op("div", op("mul", x, _relu6(op("add", x, number(3.0, t), dtype=t), t), dtype=t), number(6.0, t), dtype=t)


def _softplus_of(x: Expr, t: str) -> Expr:
    """log(1 + eˣ) without overflow: max(x, 0) + log1p(e^−|x|)."""
    falling = op("exp", op("neg", op("abs", x, dtype=t), dtype=t), dtype=t)
    return op("add", op("max", x, number(0.0, t), dtype=t), op("log1p", falling, dtype=t), dtype=t)


@_simple("mish")
def _mish(x: Expr, t: str) -> Expr:
    return op("mul", x, op("tanh", _softplus_of(x, t), dtype=t), dtype=t)


@_simple("log_sigmoid")
def _log_sigmoid(x: Expr, t: str) -> Expr:
    return op("neg", _softplus_of(op("neg", x, dtype=t), t), dtype=t)


@_simple("log10")
def _log10(x: Expr, t: str) -> Expr:
    return op("mul", op("log", x, dtype=t), number(1.0 / math.log(10.0), t), dtype=t)


def _log1p_beyond(inner: Expr, y: Expr, t: str) -> Expr:
    """log1p(inner); far out, where `inner` is 2y by way of squares that overflow, log1p(y) + ln 2."""
    far = op("gt", y, number(1e18, t), dtype="bool")
    near = op("log1p", where(far, y, inner, t), dtype=t)
    return op("add", near, where(far, number(math.log(2.0), t), number(0.0, t), t), dtype=t)


@_simple("asinh")
def _asinh(x: Expr, t: str) -> Expr:
    """sign(x) · log1p(|x| + x² / (1 + √(1 + x²))), accurate near 0."""
    size = op("abs", x, dtype=t)
    root = op("sqrt", op("add", op("mul", x, x, dtype=t), number(1.0, t), dtype=t), dtype=t)
    share = op("div", size, op("add", root, number(1.0, t), dtype=t), dtype=t)
    inner = op("add", size, op("mul", size, share, dtype=t), dtype=t)
    return op("mul", op("sign", x, dtype=t), _log1p_beyond(inner, size, t), dtype=t)


@_simple("acosh")
def _acosh(x: Expr, t: str) -> Expr:
    """log1p(y + √(y² + 2y)) with y = x − 1, accurate near 1."""
    y = op("sub", x, number(1.0, t), dtype=t)
    square = op("mul", y, op("add", y, number(2.0, t), dtype=t), dtype=t)
    return _log1p_beyond(op("add", y, op("sqrt", square, dtype=t), dtype=t), y, t)


@_simple("atanh")
def _atanh(x: Expr, t: str) -> Expr:
    """½ log1p(2x + 2x · x / (1 − x)), accurate near 0; NaN beyond ±1, where the quotient is rounded to −1 far out."""
    twice = op("add", x, x, dtype=t)
    share = op("div", x, op("sub", number(1.0, t), x, dtype=t), dtype=t)
    ratio = op("add", twice, op("mul", twice, share, dtype=t), dtype=t)
    beyond = op("gt", op("abs", x, dtype=t), number(1.0, t), dtype="bool")
    return where(beyond, number(math.nan, t), op("mul", number(0.5, t), op("log1p", ratio, dtype=t), dtype=t), t)


@register("gelu")
def _gelu(b: Builder, x: Value, approximate: str = "none") -> Value:
    t = b.out_dtype()

    def formula(a: Expr) -> Expr:
        if approximate == "tanh":
            cube = op("mul", op("mul", a, a, dtype=t), a, dtype=t)
            inner = op("add", a, op("mul", number(0.044715, t), cube, dtype=t), dtype=t)
            gate = op("tanh", op("mul", number(math.sqrt(2.0 / math.pi), t), inner, dtype=t), dtype=t)
        else:
            gate = op("erf", op("mul", a, number(_HALF, t), dtype=t), dtype=t)
        return op("mul", op("mul", number(0.5, t), a, dtype=t), op("add", number(1.0, t), gate, dtype=t), dtype=t)

    return b.pointwise(formula, x)


def _elu_of(b: Builder, x: Value, alpha: float, outer: float, inner: float) -> Value:
    t = b.out_dtype()

    def formula(a: Expr) -> Expr:
        scaled = a if inner == 1 else op("mul", a, number(inner, t), dtype=t)
        negative = op("mul", op("expm1", scaled, dtype=t), number(alpha * outer, t), dtype=t)
        positive = a if outer == 1 else op("mul", a, number(outer, t), dtype=t)
        return where(op("gt", a, number(0.0, t), dtype="bool"), positive, negative, t)

    return b.pointwise(formula, x)


@register("elu")
def _elu(b: Builder, x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    return _elu_of(b, x, alpha, scale, input_scale)


@register("selu")
def _selu(b: Builder, x: Value) -> Value:
    return _elu_of(b, x, _SELU_ALPHA, _SELU_SCALE, 1.0)


@register("celu")
def _celu(b: Builder, x: Value, alpha: float = 1.0) -> Value:
    return _elu_of(b, x, alpha, 1.0, 1.0 / alpha)


@register("leaky_relu")
def _leaky_relu(b: Builder, x: Value, slope: float = 0.01) -> Value:
    t = b.out_dtype()
    return b.pointwise(lambda a: _leaky(a, slope, t), x)


def _leaky(a: Expr, slope: float, t: str) -> Expr:
    return where(op("gt", a, number(0.0, t), dtype="bool"), a, op("mul", a, number(slope, t), dtype=t), t)


@register("rrelu_with_noise_functional")
def _rrelu(
    b: Builder, x: Value, noise: Value, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, *_: Any
) -> tuple[Value, Value]:
    """At inference a leaky ReLU with the mean slope."""
    if training:
        raise b.refuse("training=True, which draws its slopes,")
    t = b.out_dtype(0)
    return b.map(x.shape, t, lambda index, extents: _leaky(x.read(index, extents, t), (lower + upper) / 2, t)), noise


@register("prelu", "_prelu_kernel")
def _prelu(b: Builder, x: Value, weight: Value) -> Value:
    t = b.out_dtype()
    if weight.rank == 1 and weight.shape[0] > 1:  # one slope per channel, dimension 1
        shape = tuple(size if dim == 1 else 1 for dim, size in enumerate(x.shape))
        weight = weight.viewed(shape, [axis("d1")])
    elif weight.rank == 1:
        weight = weight.viewed((), [const(0)])
    return b.pointwise(
        lambda a, w: where(op("gt", a, number(0.0, t), dtype="bool"), a, op("mul", a, w, dtype=t), t), x, weight
    )


@register("softplus")
def _softplus(b: Builder, x: Value, beta: Number = 1, threshold: Number = 20) -> Value:
    t = b.out_dtype()

    def formula(a: Expr) -> Expr:
        scaled = a if beta == 1 else op("mul", a, number(beta, t), dtype=t)
        soft = op("log1p", op("exp", scaled, dtype=t), dtype=t)
        soft = soft if beta == 1 else op("div", soft, number(beta, t), dtype=t)
        return where(op("gt", scaled, number(threshold, t), dtype="bool"), a, soft, t)

    return b.pointwise(formula, x)


@register("softshrink")
def _softshrink(b: Builder, x: Value, lambd: Number = 0.5) -> Value:
    t = b.out_dtype()

    def formula(a: Expr) -> Expr:
        low = where(
            op("lt", a, number(-lambd, t), dtype="bool"), op("add", a, number(lambd, t), dtype=t), number(0.0, t), t
        )
        shrunk = where(op("gt", a, number(lambd, t), dtype="bool"), op("sub", a, number(lambd, t), dtype=t), low, t)
        return where(op("isnan", a, dtype="bool"), a, shrunk, t)

    return b.pointwise(formula, x)


@register("hardshrink")
def _hardshrink(b: Builder, x: Value, lambd: Number = 0.5) -> Value:
    t = b.out_dtype()

    def formula(a: Expr) -> Expr:
        inside = op("le", op("abs", a, dtype=t), number(lambd, t), dtype="bool")
        return where(inside, number(0.0, t), a, t)

    return b.pointwise(formula, x)


@register("threshold")
def _threshold(b: Builder, x: Value, threshold: Number, value: Number) -> Value:
    t = b.out_dtype()
    return b.pointwise(lambda a: where(op("le", a, number(threshold, t), dtype="bool"), number(value, t), a, t), x)


@register("hardtanh", "clamp", "clamp.Tensor", "clip", "clip.Tensor")
def _clamp(b: Builder, x: Value, min: Arg | None = None, max: Arg | None = None, **names: Arg) -> Value:
    """Clamp with numbers, tensors or nothing on either side; NaN stays. `hardtanh` defaults to [−1, 1]."""
    if b.origin == "aten.hardtanh.default":
        min = names.get("min_val", -1.0 if min is None else min)
        max = names.get("max_val", 1.0 if max is None else max)
    t = b.out_dtype()
    sides = [("max", min), ("min", max)]
    given = [(name, limit) for name, limit in sides if limit is not None]

    def formula(a: Expr, *limits: Expr) -> Expr:
        for (name, _), limit in zip(given, limits, strict=True):
            a = op(name, a, limit, dtype=t)
        return a

    return b.pointwise(formula, x, *(limit for _, limit in given if limit is not None))


@register("clamp_min", "clamp_min.Tensor")
def _clamp_min(b: Builder, x: Value, limit: Arg) -> Value:
    return _clamp(b, x, limit)


@register("clamp_max", "clamp_max.Tensor")
def _clamp_max(b: Builder, x: Value, limit: Arg) -> Value:
    return _clamp(b, x, None, limit)
