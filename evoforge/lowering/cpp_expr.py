"""Expressions as C++, scalar or vector: one printer for both, since `evo::` functions are overloaded.

In vector code a subexpression that does not depend on the lane axis stays scalar and is broadcast
where the other operand is a vector. Halves are computed in float; 16-bit casts inside an expression
round nothing (what is meant to round is an operator, `as_f16`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from evoforge.errors import UnsupportedError
from evoforge.lowering.domain import Access, Node
from evoforge.lowering.index import names as axes_of
from evoforge.lowering.index import scale
from evoforge.lowering.ir import (
    Affine,
    Cast,
    Const,
    Expr,
    FloorDiv,
    Guard,
    Indirect,
    Load,
    Mod,
    Op,
    Position,
    Tensor,
    Where,
)  # fmt: skip
from evoforge.lowering.lanes import (
    COMPARISONS,
    INTS,
    beside,
    can_compare,
    computed,
    difference,
    moves,
    phase,
    stride_text,
)
from evoforge.lowering.stages import dtype_of, else_value

__all__ = ["CTYPES", "Context", "Value", "affine_text", "guards_text", "print_expr"]

CTYPES = {
    "f32": "float", "f64": "double", "f16": "evo::f16", "bf16": "evo::bf16", "i8": "int8_t", "u8": "uint8_t",
    "i16": "int16_t", "i32": "int32_t", "i64": "int64_t", "bool": "bool",
}  # fmt: skip
_CONVERTED = ("i8", "u8", "i16")  # vectors of them are loaded as floats
_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">",
    "ge": ">=", "and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>",
}  # fmt: skip


@dataclass(frozen=True)
class Value:
    """C++ text, whether it is a vector, and its dtype as computed."""

    text: str
    vector: bool
    dtype: str
    atom: bool = True


@dataclass
class Context:
    """What an expression is printed with.

    `load` prints an access to memory as a pointer expression; `known` holds tensors that are values
    already; `axes` gives the text of an axis (an axis that is missing was collapsed into another);
    `reciprocals` has, by the text of a divisor, that of its reciprocal; `given` guards are known to hold.
    """

    vector: bool
    lane: str
    lane_text: str
    tensors: Mapping[str, Tensor]
    pointers: Mapping[str, str]
    offset: Callable[[Access], str]
    axis: Callable[[str], str]
    node: Node | None = None
    known: dict[str, Value] = field(default_factory=dict)
    reciprocals: dict[str, str] = field(default_factory=dict)
    shared: dict[tuple[str, str], Value] = field(default_factory=dict)
    given: tuple[Guard, ...] = ()


def affine_text(index: Affine, ctx: Context) -> str:
    parts: list[str] = []
    for factor, atom in index.terms:
        text = _atom_text(atom, ctx)
        parts.append(text if factor == 1 else f"{factor} * {text}" if factor >= 0 else f"({factor}) * {text}")
    if index.const or not parts:
        parts.append(str(index.const))
    return " + ".join(parts).replace("+ -", "- ")


def _atom_text(atom: Any, ctx: Context) -> str:
    if isinstance(atom, str):
        return ctx.axis(atom)
    if isinstance(atom, FloorDiv):
        return f"evo::floordiv<int64_t>({affine_text(atom.arg, ctx)}, {atom.by})"
    if isinstance(atom, Mod):
        return f"evo::mod<int64_t>({affine_text(atom.arg, ctx)}, {atom.by})"
    return f"(int64_t)({print_expr(atom.value, ctx).text})"


def _literal(value: Any, dtype: str) -> str:
    dtype = computed(dtype)
    if dtype == "bool":
        return "true" if value else "false"
    if dtype not in ("f32", "f64"):
        return f"{CTYPES[dtype]}({int(value)})" if value > -(2**63) else "INT64_MIN"
    number = float(value)
    suffix = "f" if dtype == "f32" else ""
    if math.isnan(number):
        return "EVO_NAN" if suffix else "(double)EVO_NAN"
    if math.isinf(number):
        text = "EVO_INF" if number > 0 else "-EVO_INF"
        return text if suffix else f"(double)({text})"
    text = repr(number)
    return f"{text}{suffix}"


def _as_vector(value: Value) -> str:
    if value.vector:
        return value.text
    if value.dtype == "bool":
        return f"evo::broadcast(-(int32_t)({value.text}))"
    return f"evo::broadcast({value.text})"


def _wrapped(value: Value) -> str:
    return value.text if value.atom else f"({value.text})"


def print_expr(expr: Expr, ctx: Context) -> Value:
    """`expr` in `ctx`.

    Raises:
        UnsupportedError: an operator that has no C++ here.
    """
    if isinstance(expr, Const) and expr.sizes:
        return Value(f"{CTYPES[computed(expr.dtype)]}({expr.sizes})", False, computed(expr.dtype))
    if isinstance(expr, Const):
        return Value(_literal(expr.value, expr.dtype), False, computed(expr.dtype))
    if isinstance(expr, Load):
        return _load(expr, ctx)
    if ctx.vector and ctx.lane in axes_of(expr) and dtype_of(expr, ctx.tensors) in INTS:
        return _whole(expr, ctx)
    place = expr.arg if isinstance(expr, Cast) else expr
    if isinstance(place, Position) and ctx.vector and ctx.lane in axes_of(place):
        factor = next((c for c, atom in place.index.terms if atom == ctx.lane), 0)
        return Value(f"evo::positions({affine_text(place.index, ctx)}, {factor})", True, computed(expr.dtype))
    if isinstance(expr, Position):
        return Value(f"{CTYPES[computed(expr.dtype)]}({affine_text(expr.index, ctx)})", False, computed(expr.dtype))
    if isinstance(expr, Cast):
        value = print_expr(expr.arg, ctx)
        if value.vector and value.dtype in _CONVERTED:
            return replace(value, dtype="f32")
        if value.vector and value.dtype == "i32":
            return Value(f"evo::real({value.text})", True, "f32")
        return _cast(value, computed(expr.dtype))
    if isinstance(expr, Where):
        return _select(
            print_expr(expr.condition, ctx),
            print_expr(expr.then, ctx),
            print_expr(expr.other, ctx),
            computed(expr.dtype),
        )
    return _operation(expr, ctx)


def _load(load: Load, ctx: Context) -> Value:
    dtype = computed(ctx.tensors[load.tensor].dtype)
    known = ctx.known.get(load.tensor)
    if known is not None:
        return _guarded(known, load, load.guards, ctx)
    assert ctx.node is not None
    access = ctx.node.accesses[load]
    where = ctx.offset(access) if access.terms is not None else _address(load, ctx)
    shared = ctx.shared.get((load.tensor, where))
    if shared is not None and not load.guards:
        return shared
    pointer = ctx.pointers[load.tensor]
    place = pointer if where == "0" else f"{pointer} + {where}"
    masks = [guard for guard in load.guards if ctx.vector and ctx.lane in axes_of(guard.arg)]
    rest = [guard for guard in load.guards if guard not in masks]
    moves = ctx.lane in (axes_of(load.index) if access.terms is None else access.axes)  # an expanded axis does not
    if ctx.vector and moves:
        if access.terms is None:
            step = beside(load, ctx.lane, ctx.tensors)
        else:
            step = "1" if access.step(ctx.lane) == 1 else _step_text(access, ctx)
        lanes = f"n, {_masks(masks, ctx)}" if masks else "n"  # masked lanes read as 0
        if step is None and phase(load, ctx.lane, ctx.tensors) is not None:
            return _guarded(_quotients(load, masks, ctx), load, rest, ctx)
        if step is None:
            value = _looked_up(load, lanes, ctx)
            return _guarded(value, load, load.guards if load.other else rest, ctx)
        stride = "" if step == "1" else f"{step}, "
        name = "gather" if stride else "load"
        if masks and not stride and dtype == "f32":
            lanes = ", ".join(["n", *(f"evo::edge{{{text}}}" for text in _edges(masks, ctx))])
        if dtype in ("i32", "i64"):
            return Value(f"evo::{name}_i32({place}, {stride}{lanes})", True, "i32")
        value = Value(f"evo::{name}({place}, {stride}{lanes})", True, dtype)
        return _guarded(value, load, load.guards if load.other else rest, ctx)
    text = f"{pointer}[{where}]"
    tensor = ctx.tensors[load.tensor]
    if tensor.kind != "tmp" and tensor.dtype != computed(tensor.dtype):
        text = f"float({text})"
    return _guarded(Value(text, False, dtype), load, load.guards, ctx)


def _guarded(value: Value, load: Load, guards: Sequence[Guard], ctx: Context) -> Value:
    """`value` where all of `guards` hold, the load's other value elsewhere."""
    masks = [guard for guard in guards if ctx.vector and ctx.lane in axes_of(guard.arg)]
    scalar = [guard for guard in guards if guard not in masks and guard not in ctx.given]
    other = Value(_literal(else_value(load.other, value.dtype), value.dtype), False, value.dtype)
    if masks:
        text = f"evo::select({_masks(masks, ctx)}, {_as_vector(value)}, {_as_vector(other)})"
        value = Value(text, True, value.dtype)
    if scalar:
        texts = [_as_vector(part) if value.vector else part.text for part in (value, other)]
        value = Value(f"({guards_text(scalar, ctx)} ? {texts[0]} : {texts[1]})", value.vector, value.dtype)
    return value


def _step_text(access: Access, ctx: Context) -> str:
    size = dict(access.terms or ())[ctx.lane]
    text = ctx.offset(Access(access.tensor, ((ctx.lane, size),), 0))
    return re.sub(rf"\b{ctx.lane_text}( \* |$)", "", text) or "1"


def _address(load: Load, ctx: Context) -> str:
    parts = []
    tensor = ctx.tensors[load.tensor]
    for dim, index in enumerate(load.index):
        text, step = affine_text(index, ctx), stride_text(tensor, dim)
        if text != "0":
            parts.append(text if step == "1" else f"({text}) * {step}")
    return " + ".join(parts) or "0"


def guards_text(guards: Sequence[Guard], ctx: Context) -> str:
    """Whether all of `guards` hold; none of them is about the lane axis."""
    return " && ".join(_guard(guard, ctx) for guard in guards)


def _guard(guard: Guard, ctx: Context) -> str:
    text = affine_text(guard.arg, ctx)
    return f"{text} >= 0" if guard.kind == "ge0" else f"evo::mod<int64_t>({text}, {guard.modulus}) == 0"


def _masks(guards: Sequence[Guard], ctx: Context) -> str:
    """Lanes where all of `guards` hold."""
    return " & ".join(f"evo::at_least_0({text})" for text in _edges(guards, ctx))


def _edges(guards: Sequence[Guard], ctx: Context) -> list[str]:
    """What has to be at least 0 in the first lane, and by how much it changes from one lane to the next."""
    factors = [next(c for c, atom in guard.arg.terms if atom == ctx.lane) for guard in guards]
    return [f"{affine_text(guard.arg, ctx)}, {factor}" for guard, factor in zip(guards, factors, strict=True)]


def _quotients(load: Load, guards: Sequence[Guard], ctx: Context) -> Value:
    """The elements of a `phase`, where `guards`, those about the lane axis, hold."""
    atom = phase(load, ctx.lane, ctx.tensors)
    assert atom is not None, "the lane axis is not linear in this address: `can_vectorise` says so"
    index = tuple(Affine(tuple((c, a) for c, a in i.terms if a != atom), i.const) for i in load.index)
    where = _address(replace(load, index=index), ctx)
    place = ctx.pointers[load.tensor] if where == "0" else f"{ctx.pointers[load.tensor]} + {where}"
    held = _masks([guard for guard in guards if guard.kind == "ge0"], ctx) or "evo::take({evo::lanes})"
    first = affine_text(atom.arg, ctx)
    return Value(f"evo::load_quotients({place}, {first}, {atom.by}, n, {held})", True, "f32")


def _looked_up(load: Load, lanes: str, ctx: Context) -> Value:
    """The elements at places that differ by whole numbers read for every lane, or by quotients and remainders."""
    tensor, found, rest = ctx.tensors[load.tensor], [], []
    for dim, index in enumerate(load.index):
        moving = [(factor, atom) for factor, atom in index.terms if moves(ctx.lane, factor, atom)]
        rest.append(Affine(tuple(term for term in index.terms if term not in moving), index.const))
        for factor, atom in moving:
            step = stride_text(tensor, dim)
            if isinstance(atom, FloorDiv | Mod):
                step_of = next(c for c, part in atom.arg.terms if part == ctx.lane)
                name = "quotients" if isinstance(atom, FloorDiv) else "remainders"
                text = f"evo::{name}({affine_text(atom.arg, ctx)}, {step_of}, {atom.by})"
            else:
                assert isinstance(atom, Indirect) or atom == ctx.lane, "`can_vectorise` says so"
                value = atom.value if isinstance(atom, Indirect) else Position(Affine(((1, atom),)), "i64")
                text = _wrapped(_whole(value, ctx))
            if step != "0":
                by = " * ".join(part for part in (str(factor), step) if part != "1")
                found.append(f"int32_t({by}) * {text}" if by else text)
    where = _address(replace(load, index=tuple(rest)), ctx)
    place = ctx.pointers[load.tensor] if where == "0" else f"{ctx.pointers[load.tensor]} + {where}"
    return Value(f"evo::lookup({place}, {' + '.join(found) or 'evo::ivec{}'}, {lanes})", True, computed(tensor.dtype))


def _whole(expr: Expr, ctx: Context) -> Value:
    """Whole numbers of 32 bits per lane; one where all lanes have the same."""
    if isinstance(expr, Const) and not expr.sizes:
        return Value(f"int32_t({int(expr.value)})", False, "i32")
    if ctx.lane not in axes_of(expr):
        value = print_expr(expr, ctx)
        return value if value.dtype == "i32" else Value(f"evo::to_i32({value.text})", False, "i32")
    if isinstance(expr, Position):
        factor = next(c for c, atom in expr.index.terms if atom == ctx.lane)
        return Value(f"evo::places({affine_text(expr.index, ctx)}, {factor})", True, "i32")
    if isinstance(expr, Cast) and dtype_of(expr.arg, ctx.tensors) in INTS:
        return _whole(expr.arg, ctx)
    if isinstance(expr, Cast):
        value = print_expr(expr.arg, ctx)
        if value.dtype == "bool":
            return Value(f"{_wrapped(value)} & 1", True, "i32", False)
        narrowed = f"evo::whole<{CTYPES[expr.dtype]}>" if expr.dtype in _CONVERTED else "evo::to_i32"
        return Value(f"{narrowed}({value.text})", True, "i32")
    if isinstance(expr, Where):
        then, other = (_as_vector(_whole(part, ctx)) for part in (expr.then, expr.other))
        return Value(f"evo::select({print_expr(expr.condition, ctx).text}, {then}, {other})", True, "i32")
    if isinstance(expr, Op):
        parts = [_whole(arg, ctx) for arg in expr.args]
        if expr.name in ("abs", "max", "min") or _shifts_far(expr):
            return Value(f"evo::{expr.name}({', '.join(_as_vector(part) for part in parts)})", True, "i32")
        left, right = parts
        return Value(f"{_wrapped(left)} {_INFIX[expr.name]} {_wrapped(right)}", True, "i32", False)
    value = print_expr(expr, ctx)
    return value if value.dtype == "i32" else Value(f"evo::to_i32({value.text})", True, "i32")


def _shifts_far(op: Op) -> bool:
    """Whether a shift may be by a number of bits for which C++ says nothing, and torch does."""
    if op.name not in ("shl", "shr"):
        return False
    count, bits = op.args[1], 8 if op.dtype in _CONVERTED else 32
    return not (isinstance(count, Const) and not count.sizes and 0 <= count.value < bits)


def _compared(name: str, gap: Affine, ctx: Context) -> str:
    def holds(index: Affine) -> str:
        factor = next((c for c, atom in index.terms if atom == ctx.lane), 0)
        return f"evo::at_least_0({affine_text(index, ctx)}, {factor})"

    least, most = holds(gap), holds(scale(gap, -1))
    if name in ("eq", "ne"):
        return f"{'' if name == 'eq' else '~'}({least} & {most})"
    return {"ge": least, "le": most, "gt": f"~{most}", "lt": f"~{least}"}[name]


def _cast(value: Value, dtype: str) -> Value:
    if value.dtype == dtype:
        return value
    if dtype == "bool":
        return Value(f"{_wrapped(value)} != 0", value.vector, dtype, False)
    if value.vector:  # bool → float
        return Value(f"evo::select({value.text}, evo::broadcast(1.f), evo::vec{{}})", True, dtype)
    narrowed = "evo::whole<{}>" if dtype in INTS and value.dtype in ("f32", "f64") else "{}"
    return Value(f"{narrowed.format(CTYPES[dtype])}({value.text})", False, dtype)


def _select(condition: Value, then: Value, other: Value, dtype: str) -> Value:
    if condition.vector:
        return Value(f"evo::select({condition.text}, {_as_vector(then)}, {_as_vector(other)})", True, dtype)
    if then.vector or other.vector:  # the one that is wanted, and not both
        return Value(f"{_wrapped(condition)} ? {_as_vector(then)} : {_as_vector(other)}", True, dtype, False)
    return Value(f"{_wrapped(condition)} ? {_wrapped(then)} : {_wrapped(other)}", False, dtype, False)


def _operation(op: Op, ctx: Context) -> Value:
    if op.name == "pow" and isinstance(op.args[1], Const):
        short = {2.0: "square", 3.0: "cube", 0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}.get(
            float(op.args[1].value)
        )
        if short and (computed(op.dtype) in ("f32", "f64") or short in ("square", "cube")):
            value = print_expr(op.args[0], ctx)
            return Value(f"evo::{short}({value.text})", value.vector, computed(op.dtype))
    if ctx.vector and op.name in COMPARISONS and ctx.lane in axes_of(op):
        if (gap := difference(op)) is not None:
            return Value(_compared(op.name, gap, ctx), True, "bool", False)
        assert ctx.node is not None
        if can_compare(op, ctx.lane, ctx.node, ctx.tensors):
            left, right = (_whole(arg, ctx) for arg in op.args)
            return Value(f"{_wrapped(left)} {_INFIX[op.name]} {_wrapped(right)}", True, "bool", False)
    args = [print_expr(arg, ctx) for arg in op.args]
    vector = any(arg.vector for arg in args)
    dtype = "bool" if op.name in (*COMPARISONS, "isnan", "isinf") else computed(op.dtype)
    if op.name == "div" and dtype == "f32" and args[1].text in ctx.reciprocals:
        return Value(f"{_wrapped(args[0])} * {ctx.reciprocals[args[1].text]}", vector, dtype, False)
    if _shifts_far(op):
        return Value(f"evo::{op.name}<{CTYPES[dtype]}>({args[0].text}, {args[1].text})", False, dtype)
    if op.name in _INFIX:
        left, right = args
        if dtype == "bool" and left.vector != right.vector and "bool" in (left.dtype, right.dtype):
            left, right = (one if one.vector else Value(_as_vector(one), True, one.dtype) for one in args)
        if op.name == "div" and dtype not in ("f32", "f64"):
            return Value(f"{_wrapped(left)} / {_wrapped(right)}", vector, dtype, False)
        return Value(f"{_wrapped(left)} {_INFIX[op.name]} {_wrapped(right)}", vector, dtype, False)
    if op.name == "neg":
        text = f"({args[0].text})" if args[0].text.startswith("-") else _wrapped(args[0])  # a literal
        return Value(f"-{text}", vector, dtype, False)
    if op.name == "not":
        sign = "!" if args[0].dtype == "bool" else "~"
        return Value(f"{sign}{_wrapped(args[0])}", vector, dtype, False)
    texts = [_as_vector(arg) if vector else arg.text for arg in args]
    if not vector and len(args) == 2:
        texts = [arg.text if arg.dtype == dtype else f"{CTYPES[dtype]}({arg.text})" for arg in args]
    if op.name in _FUNCTIONS:
        return Value(f"evo::{op.name}({', '.join(texts)})", vector, dtype)
    raise UnsupportedError(f"expected an operator with a C++ form, got {op.name}; leave that part out of the task")


_FUNCTIONS = (
    "abs", "sqrt", "rsqrt", "reciprocal", "exp", "expm1", "exp2", "log", "log1p", "log2", "sin", "cos", "tan", "asin",
    "acos", "atan", "sinh", "cosh", "tanh", "erf", "erfc", "sigmoid", "floor", "ceil", "round", "trunc", "sign",
    "isnan", "isinf", "floordiv", "mod", "fmod", "pow", "max", "min", "atan2", "hypot", "copysign",
    "rounded", "as_f16", "as_bf16", "lgamma",
)  # fmt: skip
