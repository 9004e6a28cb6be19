"""Elementwise operators: one map stage each, in the dtype that the export says."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from evoforge.lowering.index import add, axis, const, scale
from evoforge.lowering.ir import Cast, Const, Expr, Position
from evoforge.lowering.operators.builder import Builder, Value, is_float, is_int, op, short_dtype, where, working
from evoforge.lowering.operators.registry import register

__all__ = ["promoted"]

Number = float | int | bool
Arg = Value | Number
_HALF = math.sqrt(0.5)
_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def _c(value: Number, like: str) -> Const:
    return Const(int(value) if is_int(like) else float(value), like)


def promoted(*args: Arg) -> str:
    """The dtype in which torch would combine `args` (tensors, zero-dimensional tensors, numbers)."""
    import torch

    names = {"f32": torch.float32, "f64": torch.float64, "bool": torch.bool, "u8": torch.uint8}
    names |= {"i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64}

    def stand_in(arg: Arg) -> Any:
        return torch.empty((1,) * arg.rank, dtype=names[arg.dtype], device="meta") if isinstance(arg, Value) else arg

    kinds = [stand_in(arg) for arg in args]
    return working(short_dtype(torch.result_type(kinds[0], kinds[-1])))


# unary

_SAME_NAME = (
    "neg", "abs", "sqrt", "rsqrt", "reciprocal", "exp", "expm1", "exp2", "log", "log1p", "log2", "sin", "cos", "tan",
    "asin", "acos", "atan", "sinh", "cosh", "tanh", "erf", "sigmoid", "floor", "ceil", "round", "trunc", "sign",
)  # fmt: skip


def _unary(name: str) -> Callable[[Builder, Value], Value]:
    def handle(b: Builder, x: Value) -> Value:
        dtype = b.out_dtype()
        if name in ("floor", "ceil", "round", "trunc") and not is_float(dtype):
            return x
        return b.pointwise(lambda a: op(name, a, dtype=dtype), x)

    return handle


for _name in _SAME_NAME:
    register(_name)(_unary(_name))


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
    return op("max", x, _c(0, t), dtype=t)


@_simple("relu6")
def _relu6(x: Expr, t: str) -> Expr:
    return op("min", _relu(x, t), _c(6.0, t), dtype=t)


@_simple("silu")
def _silu(x: Expr, t: str) -> Expr:
    return op("mul", x, op("sigmoid", x, dtype=t), dtype=t)


@_simple("square")
def _square(x: Expr, t: str) -> Expr:
    return op("mul", x, x, dtype=t)


@_simple("hardsigmoid")
def _hardsigmoid(x: Expr, t: str) -> Expr:
    return op("div", _relu6(op("add", x, _c(3.0, t), dtype=t), t), _c(6.0, t), dtype=t)


@_simple("hardswish")
def _hardswish(x: Expr, t: str) -> Expr:
    return op("div", op("mul", x, _relu6(op("add", x, _c(3.0, t), dtype=t), t), dtype=t), _c(6.0, t), dtype=t)


def _softplus_of(x: Expr, t: str) -> Expr:
    """log(1 + eˣ) without overflow: max(x, 0) + log1p(e^−|x|)."""
    falling = op("exp", op("neg", op("abs", x, dtype=t), dtype=t), dtype=t)
    return op("add", op("max", x, _c(0.0, t), dtype=t), op("log1p", falling, dtype=t), dtype=t)


@_simple("mish")
def _mish(x: Expr, t: str) -> Expr:
    return op("mul", x, op("tanh", _softplus_of(x, t), dtype=t), dtype=t)


@_simple("log_sigmoid")
def _log_sigmoid(x: Expr, t: str) -> Expr:
    return op("neg", _softplus_of(op("neg", x, dtype=t), t), dtype=t)


@_simple("log10")
def _log10(x: Expr, t: str) -> Expr:
    return op("mul", op("log", x, dtype=t), _c(1.0 / math.log(10.0), t), dtype=t)


@_simple("asinh")
def _asinh(x: Expr, t: str) -> Expr:
    """sign(x) · log1p(|x| + x² / (1 + √(1 + x²))), accurate near 0."""
    size = op("abs", x, dtype=t)
    root = op("sqrt", op("add", op("mul", x, x, dtype=t), _c(1.0, t), dtype=t), dtype=t)
    share = op("div", size, op("add", root, _c(1.0, t), dtype=t), dtype=t)
    inner = op("add", size, op("mul", size, share, dtype=t), dtype=t)
    return op("mul", op("sign", x, dtype=t), op("log1p", inner, dtype=t), dtype=t)


@_simple("acosh")
def _acosh(x: Expr, t: str) -> Expr:
    """log1p(y + √(y² + 2y)) with y = x − 1, accurate near 1."""
    y = op("sub", x, _c(1.0, t), dtype=t)
    square = op("mul", y, op("add", y, _c(2.0, t), dtype=t), dtype=t)
    return op("log1p", op("add", y, op("sqrt", square, dtype=t), dtype=t), dtype=t)


@_simple("atanh")
def _atanh(x: Expr, t: str) -> Expr:
    ratio = op("div", op("mul", _c(2.0, t), x, dtype=t), op("sub", _c(1.0, t), x, dtype=t), dtype=t)
    return op("mul", _c(0.5, t), op("log1p", ratio, dtype=t), dtype=t)


@register("gelu")
def _gelu(b: Builder, x: Value, approximate: str = "none") -> Value:
    t = b.out_dtype()

    def formula(a: Expr) -> Expr:
        if approximate == "tanh":
            cube = op("mul", op("mul", a, a, dtype=t), a, dtype=t)
            inner = op("add", a, op("mul", _c(0.044715, t), cube, dtype=t), dtype=t)
            gate = op("tanh", op("mul", _c(math.sqrt(2.0 / math.pi), t), inner, dtype=t), dtype=t)
        else:
            gate = op("erf", op("mul", a, _c(_HALF, t), dtype=t), dtype=t)
        return op("mul", op("mul", _c(0.5, t), a, dtype=t), op("add", _c(1.0, t), gate, dtype=t), dtype=t)

    return b.pointwise(formula, x)


def _elu_of(b: Builder, x: Value, alpha: float, outer: float, inner: float) -> Value:
    t = b.out_dtype()

    def formula(a: Expr) -> Expr:
        scaled = a if inner == 1 else op("mul", a, _c(inner, t), dtype=t)
        negative = op("mul", op("expm1", scaled, dtype=t), _c(alpha * outer, t), dtype=t)
        positive = a if outer == 1 else op("mul", a, _c(outer, t), dtype=t)
        return where(op("gt", a, _c(0.0, t), dtype="bool"), positive, negative, t)

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
    return b.pointwise(
        lambda a: where(op("gt", a, _c(0.0, t), dtype="bool"), a, op("mul", a, _c(slope, t), dtype=t), t), x
    )


@register("prelu", "_prelu_kernel")
def _prelu(b: Builder, x: Value, weight: Value) -> Value:
    t = b.out_dtype()
    if weight.rank == 1 and weight.shape[0] > 1:  # one slope per channel, dimension 1
        shape = tuple(size if dim == 1 else 1 for dim, size in enumerate(x.shape))
        weight = weight.viewed(shape, [axis("d1")])
    elif weight.rank == 1:
        weight = weight.viewed((), [const(0)])
    return b.pointwise(
        lambda a, w: where(op("gt", a, _c(0.0, t), dtype="bool"), a, op("mul", a, w, dtype=t), t), x, weight
    )


@register("softplus")
def _softplus(b: Builder, x: Value, beta: Number = 1, threshold: Number = 20) -> Value:
    t = b.out_dtype()

    def formula(a: Expr) -> Expr:
        scaled = a if beta == 1 else op("mul", a, _c(beta, t), dtype=t)
        soft = op("log1p", op("exp", scaled, dtype=t), dtype=t)
        soft = soft if beta == 1 else op("div", soft, _c(beta, t), dtype=t)
        return where(op("gt", scaled, _c(threshold, t), dtype="bool"), a, soft, t)

    return b.pointwise(formula, x)


@register("softshrink")
def _softshrink(b: Builder, x: Value, lambd: Number = 0.5) -> Value:
    t = b.out_dtype()

    def formula(a: Expr) -> Expr:
        low = where(op("lt", a, _c(-lambd, t), dtype="bool"), op("add", a, _c(lambd, t), dtype=t), _c(0.0, t), t)
        shrunk = where(op("gt", a, _c(lambd, t), dtype="bool"), op("sub", a, _c(lambd, t), dtype=t), low, t)
        return where(op("isnan", a, dtype="bool"), a, shrunk, t)

    return b.pointwise(formula, x)


@register("hardshrink")
def _hardshrink(b: Builder, x: Value, lambd: Number = 0.5) -> Value:
    t = b.out_dtype()

    def formula(a: Expr) -> Expr:
        inside = op("le", op("abs", a, dtype=t), _c(lambd, t), dtype="bool")
        return where(inside, _c(0.0, t), a, t)

    return b.pointwise(formula, x)


@register("threshold")
def _threshold(b: Builder, x: Value, threshold: Number, value: Number) -> Value:
    t = b.out_dtype()
    return b.pointwise(lambda a: where(op("le", a, _c(threshold, t), dtype="bool"), _c(value, t), a, t), x)


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


# binary


def _binary(name: str) -> Callable[[Builder, Arg, Arg], Value]:
    def handle(b: Builder, x: Arg, y: Arg) -> Value:
        t = b.out_dtype()
        return b.pointwise(lambda p, q: op(name, p, q, dtype=t), x, y)

    return handle


for _names, _op in (
    (("mul.Tensor", "mul.Scalar"), "mul"),
    (("maximum",), "max"),
    (("minimum",), "min"),
    (("atan2",), "atan2"),
    (("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor"), "mod"),
    (("fmod.Tensor", "fmod.Scalar"), "fmod"),
    (("floor_divide", "floor_divide.Scalar"), "floordiv"),
    (
        ("bitwise_left_shift.Tensor", "bitwise_left_shift.Tensor_Scalar", "__lshift__.Tensor", "__lshift__.Scalar"),
        "shl",
    ),
    (
        ("bitwise_right_shift.Tensor", "bitwise_right_shift.Tensor_Scalar", "__rshift__.Tensor", "__rshift__.Scalar"),
        "shr",
    ),
    (("bitwise_and.Tensor", "bitwise_and.Scalar"), "and"),
    (("bitwise_or.Tensor", "bitwise_or.Scalar"), "or"),
    (("bitwise_xor.Tensor", "bitwise_xor.Scalar"), "xor"),
):
    register(*_names)(_binary(_op))


def _comparison(name: str) -> Callable[[Builder, Arg, Arg], Value]:
    def handle(b: Builder, x: Arg, y: Arg) -> Value:
        return b.pointwise(lambda p, q: op(name, p, q, dtype="bool"), x, y, dtype=promoted(x, y))

    return handle


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    register(f"{_name}.Tensor", f"{_name}.Scalar")(_comparison(_name))


def _logical(name: str) -> Callable[..., Value]:
    def handle(b: Builder, *args: Arg) -> Value:
        return b.pointwise(lambda *p: op(name, *p, dtype="bool"), *args, dtype="bool")

    return handle


for _name in ("and", "or", "xor", "not"):
    register(f"logical_{_name}")(_logical(_name))


@register("bitwise_not")
def _bitwise_not(b: Builder, x: Value) -> Value:
    t = b.out_dtype()
    if t == "bool":
        return b.pointwise(lambda a: op("not", a, dtype=t), x)
    return b.pointwise(lambda a: op("sub", _c(-1, t), a, dtype=t), x)


@register("isnan", "isinf", "isfinite")
def _classify(b: Builder, x: Value) -> Value:
    if not is_float(x.dtype):
        return b.constant(b.origin == "aten.isfinite.default", "bool", x.shape)

    def formula(a: Expr) -> Expr:
        nan, inf = op("isnan", a, dtype="bool"), op("isinf", a, dtype="bool")
        if b.origin == "aten.isfinite.default":
            return op("not", op("or", nan, inf, dtype="bool"), dtype="bool")
        return nan if b.origin == "aten.isnan.default" else inf

    return b.pointwise(formula, x, dtype=x.dtype)


def _scaled(a: Expr, factor: Number, t: str) -> Expr:
    return a if factor == 1 else op("mul", a, _c(factor, t), dtype=t)


@register("add.Tensor", "add.Scalar")
def _add(b: Builder, x: Arg, y: Arg, alpha: Number = 1) -> Value:
    t = b.out_dtype()
    name = "or" if t == "bool" else "add"
    return b.pointwise(lambda p, q: op(name, p, _scaled(q, alpha, t), dtype=t), x, y)


@register("sub.Tensor", "sub.Scalar")
def _sub(b: Builder, x: Arg, y: Arg, alpha: Number = 1) -> Value:
    t = b.out_dtype()
    return b.pointwise(lambda p, q: op("sub", p, _scaled(q, alpha, t), dtype=t), x, y)


@register("rsub.Tensor", "rsub.Scalar")
def _rsub(b: Builder, x: Value, y: Arg, alpha: Number = 1) -> Value:
    return _sub(b, y, x, alpha)


@register("div.Tensor", "div.Scalar", "div.Tensor_mode", "div.Scalar_mode")
def _div(b: Builder, x: Arg, y: Arg, rounding_mode: str | None = None) -> Value:
    t = b.out_dtype()

    def formula(p: Expr, q: Expr) -> Expr:
        if rounding_mode == "floor":
            return op("floordiv", p, q, dtype=t)
        exact = op("div", p, q, dtype=t)
        return op("trunc", exact, dtype=t) if rounding_mode == "trunc" and is_float(t) else exact

    return b.pointwise(formula, x, y)


@register("pow.Tensor_Tensor", "pow.Tensor_Scalar", "pow.Scalar")
def _pow(b: Builder, x: Arg, y: Arg) -> Value:
    t = b.out_dtype()
    if not isinstance(y, Value):
        if y == 1:
            return b.pointwise(lambda a: a, x)
        if y in (2, 3, 4):
            return b.pointwise(lambda a: _whole_power(a, int(y), t), x)
        named = {0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}.get(y)
        if named and is_float(t):
            return b.pointwise(lambda a: op(named, a, dtype=t), x)
    return b.pointwise(lambda p, q: op("pow", p, q, dtype=t), x, y)


def _whole_power(a: Expr, power: int, t: str) -> Expr:
    square = op("mul", a, a, dtype=t)
    return {2: square, 3: op("mul", square, a, dtype=t), 4: op("mul", square, square, dtype=t)}[power]


@register("fmax", "fmin")
def _fmax(b: Builder, x: Value, y: Value) -> Value:
    """Like maximum and minimum, but a NaN on one side gives the other side."""
    t = b.out_dtype()
    name = "max" if "fmax" in b.origin else "min"

    def formula(p: Expr, q: Expr) -> Expr:
        both = op(name, p, q, dtype=t)
        left = where(op("isnan", q, dtype="bool"), p, both, t)
        return where(op("isnan", p, dtype="bool"), q, left, t)

    return b.pointwise(formula if is_float(t) else (lambda p, q: op(name, p, q, dtype=t)), x, y)


@register("lerp.Scalar", "lerp.Tensor")
def _lerp(b: Builder, start: Value, end: Value, weight: Arg) -> Value:
    t = b.out_dtype()

    def formula(p: Expr, q: Expr, w: Expr) -> Expr:
        return op("add", p, op("mul", w, op("sub", q, p, dtype=t), dtype=t), dtype=t)

    return b.pointwise(formula, start, end, weight)


@register("addcmul", "addcdiv")
def _addc(b: Builder, x: Value, y: Value, z: Value, value: Number = 1) -> Value:
    t = b.out_dtype()
    name = "mul" if "addcmul" in b.origin else "div"
    return b.pointwise(lambda p, q, r: op("add", p, _scaled(op(name, q, r, dtype=t), value, t), dtype=t), x, y, z)


@register("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def _where(b: Builder, condition: Value, x: Arg, y: Arg) -> Value:
    t = b.out_dtype()

    def body(index: Any, extents: dict[str, int]) -> Expr:
        sides = [b._operand(side, index, extents, t) for side in (x, y)]
        return where(condition.read(index, extents, "bool"), sides[0], sides[1], t)

    return b.map(b.out_shape(), t, body)


@register("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(b: Builder, x: Value, mask: Value, value: Arg) -> Value:
    return _where(b, mask, value, x)


# conversions and triangles


@register("_to_copy", "to.dtype", "type_as", "to.dtype_layout", "prims.convert_element_type")
def _to(b: Builder, x: Value, *_: Any, **__: Any) -> Value:
    """A change of dtype; among 16-bit floats and f32 nothing happens, values stay in f32."""
    t = b.out_dtype()
    if t == x.dtype:
        return x
    return b.map(x.shape, t, lambda index, extents: Cast(x.read(index, extents), t))


@register("tril", "triu")
def _triangle(b: Builder, x: Value, diagonal: int = 0) -> Value:
    t = b.out_dtype()

    def body(index: Any, extents: dict[str, int]) -> Expr:
        above = add(index[-1], scale(index[-2], -1), const(-diagonal))  # column − row − diagonal
        keep = op("le" if "tril" in b.origin else "ge", Position(above, "i64"), Const(0, "i64"), dtype="bool")
        return where(keep, x.read(index, extents), Const(_zero(t), t), t)

    return b.map(x.shape, t, body)


def _zero(t: str) -> Number:
    return False if t == "bool" else 0 if is_int(t) else 0.0
