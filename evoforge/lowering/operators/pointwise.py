"""Elementwise operators: one map stage each, in the dtype that the export says."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from evoforge.lowering.index import add, const, scale
from evoforge.lowering.ir import Cast, Const, Expr, Position
from evoforge.lowering.operators.builder import (
    Builder,
    Value,
    is_float,
    is_int,
    number,
    op,
    short_dtype,
    where,
    working,
)
from evoforge.lowering.operators.registry import register

__all__ = ["promoted"]

Number = float | int | bool
Arg = Value | Number


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
    "asin", "acos", "atan", "sinh", "cosh", "tanh", "erf", "erfc", "sigmoid", "floor", "ceil", "round", "trunc", "sign",
    "lgamma",
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


@register("round.decimals")
def _round_to(b: Builder, x: Value, *, decimals: int) -> Value:
    """As torch does it: a power of ten is multiplied by and divided by again, or the other way around."""
    t = b.out_dtype()
    first, then = ("mul", "div") if decimals >= 0 else ("div", "mul")
    ten = number(10 ** abs(decimals), t)

    def formula(a: Expr) -> Expr:
        return op(then, op("round", op(first, a, ten, dtype=t), dtype=t), ten, dtype=t)

    return b.pointwise(formula, x) if decimals and is_float(t) else _unary("round")(b, x)


# binary


_OF_BOOLS = {"mul": "and", "max": "or", "min": "and"}
"""Vectors hold true as −1, so that arithmetic and order are not those of 1 and 0."""


def _binary(name: str) -> Callable[[Builder, Arg, Arg], Value]:
    def handle(b: Builder, x: Arg, y: Arg) -> Value:
        t = b.out_dtype()
        same = _OF_BOOLS.get(name, name) if t == "bool" else name
        return b.pointwise(lambda p, q: op(same, p, q, dtype=t), x, y)

    return handle


for _names, _op in (
    (("mul.Tensor", "mul.Scalar"), "mul"),
    (("maximum",), "max"),
    (("minimum",), "min"),
    (("atan2",), "atan2"),
    (("hypot",), "hypot"),
    (("copysign.Tensor", "copysign.Scalar"), "copysign"),  # of computed zeros compilers need not keep the sign
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
    (("bitwise_and.Tensor", "bitwise_and.Scalar", "__and__.Tensor", "__and__.Scalar"), "and"),
    (("bitwise_or.Tensor", "bitwise_or.Scalar", "__or__.Tensor", "__or__.Scalar"), "or"),
    (("bitwise_xor.Tensor", "bitwise_xor.Scalar", "__xor__.Tensor", "__xor__.Scalar"), "xor"),
):
    register(*_names)(_binary(_op))


def _comparison(name: str) -> Callable[[Builder, Arg, Arg], Value]:
    def of_bools(p: Expr, q: Expr) -> Expr:
        low, high = (p, q) if name in ("lt", "le") else (q, p)
        neither = op("not", low, dtype="bool")
        return op("and" if name in ("lt", "gt") else "or", neither, high, dtype="bool")

    def handle(b: Builder, x: Arg, y: Arg) -> Value:
        t = promoted(x, y)
        if t == "bool" and name not in ("eq", "ne"):
            return b.pointwise(of_bools, x, y, dtype=t)
        return b.pointwise(lambda p, q: op(name, p, q, dtype="bool"), x, y, dtype=t)

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
    return b.pointwise(lambda a: op("sub", number(-1, t), a, dtype=t), x)


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


@register("signbit")
def _signbit(b: Builder, x: Value) -> Value:
    def formula(a: Expr) -> Expr:
        one = op("copysign", number(1.0, x.dtype), a, dtype=x.dtype) if is_float(x.dtype) else a
        return op("lt", one, number(0, x.dtype), dtype="bool")

    return b.constant(False, "bool", x.shape) if x.dtype == "bool" else b.pointwise(formula, x, dtype=x.dtype)


@register("angle")
def _angle(b: Builder, x: Value) -> Value:
    """Of real numbers: 0 or π, and of NaN itself."""
    t = b.out_dtype()

    def formula(a: Expr) -> Expr:
        half = where(op("lt", a, number(0.0, t), dtype="bool"), number(math.pi, t), number(0.0, t), t)
        return where(op("isnan", a, dtype="bool"), a, half, t)

    return b.pointwise(formula, x)


def _scaled(a: Expr, factor: Number, t: str) -> Expr:
    return a if factor == 1 else op("mul", a, number(factor, t), dtype=t)


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


@register("ldexp.Tensor")
def _ldexp(b: Builder, x: Value, power: Value) -> Value:
    t = b.out_dtype()
    return b.pointwise(lambda p, q: op("mul", p, op("pow", Const(2.0, t), q, dtype=t), dtype=t), x, power)


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

    return b.pointwise(formula, x, y) if is_float(t) else _binary(name)(b, x, y)


@register("lerp.Scalar", "lerp.Tensor")
def _lerp(b: Builder, start: Value, end: Value, weight: Arg) -> Value:
    t = b.out_dtype()

    def formula(p: Expr, q: Expr, w: Expr) -> Expr:
        return op("add", p, op("mul", w, op("sub", q, p, dtype=t), dtype=t), dtype=t)

    return b.pointwise(formula, start, end, weight)


@register("fake_quantize_per_tensor_affine", "fake_quantize_per_tensor_affine_cachemask")
def _fake_quantized(b: Builder, x: Value, step: float, zero: int, low: int, high: int) -> Any:
    """To whole steps and back; with the mask, where none was cut off."""
    masks = "cachemask" in b.origin
    t = b.out_dtype(0 if masks else None)
    often = float(np.float32(1) / np.float32(step))  # as torch rounds it: another one rounds elsewhere

    def whole(index: Any, extents: dict[str, int]) -> Expr:
        steps = op("round", op("mul", x.read(index, extents, t), number(often, t), dtype=t), dtype=t)
        return op("add", steps, number(zero, t), dtype=t)

    def value(index: Any, extents: dict[str, int]) -> Expr:
        cut = op("min", op("max", made.read(index, extents), number(low, t), dtype=t), number(high, t), dtype=t)
        return op("mul", op("sub", cut, number(zero, t), dtype=t), number(step, t), dtype=t)

    def inside(index: Any, extents: dict[str, int]) -> Expr:
        here = made.read(index, extents)
        above, below = (op(name, here, number(edge, t), dtype="bool") for name, edge in (("ge", low), ("le", high)))
        return op("and", above, below, dtype="bool")

    made = b.map(x.shape, t, whole, "steps")
    found = b.map(x.shape, t, value)
    return (found, b.map(x.shape, "bool", inside, "mask")) if masks else found


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
    """A change of dtype; among 16-bit floats and f32 values stay in f32 (`Builder.rounded`)."""
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
