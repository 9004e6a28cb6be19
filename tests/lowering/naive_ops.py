"""C++ text of constants, operations and monoids for the naive printer, over scalar variables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from evoforge.lowering.ir import Op

__all__ = ["STORED", "VALUE", "literal", "monoid_step", "operation"]

STORED = {
    "f32": "float", "f64": "double", "f16": "evo::f16", "bf16": "evo::bf16", "i8": "int8_t", "u8": "uint8_t",
    "i16": "int16_t", "i32": "int32_t", "i64": "int64_t", "bool": "uint8_t",
}  # fmt: skip
VALUE = STORED | {"bool": "bool"}
"""dtype → C++ type in memory, and of a variable."""


def monoid_step(monoid: str, dtype: str, name: str, value: str) -> tuple[str, str]:
    """(declaration with the identity, statement that takes `value` in)."""
    if monoid in ("sum", "prod"):
        wide = "double" if dtype in ("f32", "f64") else "int64_t"
        sign = "+" if monoid == "sum" else "*"
        return f"{wide} {name} = {0 if monoid == 'sum' else 1};", f"{name} {sign}= {value};"
    if monoid == "logsum":
        return (
            f"double {name} = -std::numeric_limits<double>::infinity();",
            f"{name} = naive::log_sum({name}, {value});",
        )
    ctype = VALUE[dtype]
    limits = f"std::numeric_limits<{ctype}>"
    if dtype in ("f32", "f64"):
        start = f"{'-' if monoid == 'max' else ''}{limits}::infinity()"
    else:
        start = f"{limits}::{'lowest' if monoid == 'max' else 'max'}()"
    step = f"{name} = naive::{'maximum' if monoid == 'max' else 'minimum'}<{ctype}>({name}, {value});"
    return f"{ctype} {name} = {start};", step


def literal(value: float | int | bool, dtype: str) -> str:
    if dtype == "bool":
        return "true" if value else "false"
    ctype = VALUE[dtype]
    if dtype not in ("f32", "f64", "f16", "bf16"):
        text = "INT64_MIN" if value == -(2**63) else f"INT64_C({int(value)})"
        return text if dtype == "i64" else f"({ctype}){text}"
    number = float(value)
    if math.isnan(number):
        text = "std::numeric_limits<float>::quiet_NaN()"
    elif math.isinf(number):
        text = f"({'-' if number < 0 else ''}std::numeric_limits<float>::infinity())"
    else:
        text = f"{number!r}" if dtype == "f64" else f"float({number!r})"
        text = f"({text})" if number < 0 else text
    return text if dtype in ("f32", "f64") else f"({ctype}){text}"


_LIBM = {"exp", "expm1", "exp2", "log", "log1p", "log2", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
         "tanh", "erf", "erfc", "hypot", "sqrt", "floor", "ceil", "trunc", "atan2", "fmod", "copysign",
         "lgamma"}  # fmt: skip
_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">",
          "ge": ">=", "shl": "<<", "shr": ">>"}  # fmt: skip
_BITS = {"and": "&", "or": "|", "xor": "^"}
_SPECIAL: dict[str, Callable[..., str]] = {
    "neg": lambda a: f"-{a}",
    "rsqrt": lambda a: f"1 / std::sqrt({a})",
    "reciprocal": lambda a: f"1 / {a}",
    "sigmoid": lambda a: f"1 / (1 + std::exp(-{a}))",
    "round": lambda a: f"std::nearbyint({a})",
    "sign": lambda a: f"({a} > 0) - ({a} < 0)",
    "not": lambda a: f"!{a}",
    "rounded": lambda a: a,
    "as_f16": lambda a: f"(float)evo::f16((float){a})",
    "as_bf16": lambda a: f"(float)evo::bf16((float){a})",
    "isnan": lambda a: f"std::isnan({a})",
    "isinf": lambda a: f"std::isinf({a})",
}


def operation(expr: Op, args: Sequence[str], ctype: str, arg_dtype: str) -> str:
    name, floating = expr.name, arg_dtype in ("f32", "f64")
    if name in _INFIX:
        text = f"{args[0]} {_INFIX[name]} {args[1]}"
        return text if floating or expr.dtype == "bool" else f"({ctype})({text})"
    if name in _BITS:
        return f"({ctype})({args[0]} {_BITS[name]} {args[1]})"
    if name in ("max", "min"):
        return f"naive::{name}imum<{ctype}>({args[0]}, {args[1]})"
    if name == "abs":
        return f"std::fabs({args[0]})" if floating else f"({ctype})({args[0]} < 0 ? -{args[0]} : {args[0]})"
    if name == "floordiv":
        call = f"naive::floor_quotient<{ctype}>" if floating else f"({ctype})naive::floordiv"
        return f"{call}({args[0]}, {args[1]})"
    if name in ("mod", "fmod") and not floating:
        return f"({ctype})naive::mod({args[0]}, {args[1]})" if name == "mod" else f"({ctype})({args[0]} % {args[1]})"
    if name == "mod":
        return f"naive::modulo<{ctype}>({args[0]}, {args[1]})"
    if name == "pow":
        return f"std::pow({args[0]}, {args[1]})" if floating else f"({ctype})naive::power({args[0]}, {args[1]})"
    if name in _LIBM:
        return f"std::{name}({', '.join(args)})"
    return f"({ctype})({_SPECIAL[name](*args)})"
