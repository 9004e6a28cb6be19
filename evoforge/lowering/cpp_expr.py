"""Expressions as C++, scalar or vector: one printer for both, since `evo::` functions are overloaded.

In vector code a subexpression that does not depend on the lane axis stays scalar and is broadcast
where the other operand is a vector. Halves are computed in float; 16-bit casts inside an expression
round nothing (the reference is computed in float as well).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from evoforge.errors import UnsupportedError
from evoforge.lowering.domain import Access, Node
from evoforge.lowering.index import add, const, scale
from evoforge.lowering.index import names as axes_of
from evoforge.lowering.ir import (
    Affine,
    Cast,
    Const,
    Expr,
    FloorDiv,
    Guard,
    Load,
    Mod,
    Op,
    Position,
    Tensor,
    Where,
)  # fmt: skip
from evoforge.lowering.stages import else_value

__all__ = ["CTYPES", "Context", "Value", "affine_text", "can_vectorise", "computed", "guards_text", "print_expr"]

CTYPES = {
    "f32": "float", "f64": "double", "f16": "evo::f16", "bf16": "evo::bf16", "i8": "int8_t", "u8": "uint8_t",
    "i16": "int16_t", "i32": "int32_t", "i64": "int64_t", "bool": "bool",
}  # fmt: skip
_FLOATS = ("f32", "f16", "bf16")
_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">",
    "ge": ">=", "and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>",
}  # fmt: skip
_SMALL_INTS = ("i8", "u8", "i16", "i32")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def computed(dtype: str) -> str:
    """The dtype that values of `dtype` are computed in: halves in f32."""
    return "f32" if dtype in _FLOATS else dtype


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
    `invert` names values whose reciprocal is at hand; `given` guards are known to hold.
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


def can_vectorise(expr: Expr, lane: str, node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Whether `expr` can be computed for a vector of neighbours along `lane`."""
    if lane not in axes_of(expr):
        return True
    if isinstance(expr, Load):
        access = node.accesses[expr]
        masked = [guard for guard in expr.guards if lane in axes_of(guard.arg)]
        dtype = tensors[expr.tensor].dtype
        if access.terms is None and _beside(expr, lane, tensors) is None:
            return _phase(expr, lane, tensors) is not None
        if not all(_is_mask(guard) and dtype == "f32" for guard in masked):
            return False
        return dtype in _FLOATS or (dtype == "bool" and access.terms is not None and access.step(lane) == 1)
    if isinstance(expr, Op) and _difference(expr) is not None:
        return True
    if isinstance(expr, Op):
        kinds = [expr.dtype, *(_dtype(arg, tensors) for arg in expr.args)]
        return all(k in (*_FLOATS, "bool") for k in kinds) and all(
            can_vectorise(a, lane, node, tensors) for a in expr.args
        )
    if isinstance(expr, Cast):
        if isinstance(expr.arg, Position):
            return computed(expr.dtype) == "f32" and all(isinstance(atom, str) for _, atom in expr.arg.index.terms)
        if isinstance(expr.arg, Load) and tensors[expr.arg.tensor].dtype in _SMALL_INTS:
            plain = node.accesses[expr.arg].terms is not None and not expr.arg.guards
            return plain and computed(expr.dtype) == "f32" and tensors[expr.arg.tensor].kind != "tmp"
        kinds = [expr.dtype, _dtype(expr.arg, tensors)]
        return all(k in (*_FLOATS, "bool") for k in kinds) and can_vectorise(expr.arg, lane, node, tensors)
    if isinstance(expr, Where):
        parts = (expr.condition, expr.then, expr.other)
        return expr.dtype in (*_FLOATS, "bool") and all(can_vectorise(part, lane, node, tensors) for part in parts)
    return False


def _dtype(expr: Expr, tensors: Mapping[str, Tensor]) -> str:
    if isinstance(expr, Load):
        return tensors[expr.tensor].dtype
    if isinstance(expr, Op) and expr.name in (*_COMPARISONS, "isnan", "isinf", "not"):
        return "bool" if expr.name != "not" else expr.dtype
    return expr.dtype


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
    if isinstance(expr, Position):
        return Value(f"{CTYPES[computed(expr.dtype)]}({affine_text(expr.index, ctx)})", False, computed(expr.dtype))
    if isinstance(expr, Load):
        return _load(expr, ctx)
    if isinstance(expr, Cast) and isinstance(expr.arg, Position) and ctx.vector and ctx.lane in axes_of(expr.arg):
        index = expr.arg.index
        factor = next((c for c, atom in index.terms if atom == ctx.lane), 0)
        return Value(f"evo::positions({affine_text(index, ctx)}, {factor})", True, computed(expr.dtype))
    if isinstance(expr, Cast):
        value = print_expr(expr.arg, ctx)
        if value.vector and value.dtype in _SMALL_INTS:  # a load that converts
            return replace(value, dtype="f32")
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
            step = _beside(load, ctx.lane, ctx.tensors)
        else:
            step = "1" if access.step(ctx.lane) == 1 else _step_text(access, ctx)
        if step is None:
            return _guarded(_quotients(load, masks, ctx), load, rest, ctx)
        lanes = f"n, {_masks(masks, ctx)}" if masks else "n"  # masked lanes read as 0
        stride = "" if step == "1" else f"{step}, "
        value = Value(f"evo::{'gather' if stride else 'load'}({place}, {stride}{lanes})", True, dtype)
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
        text, step = affine_text(index, ctx), _stride_text(tensor, dim)
        if text != "0":
            parts.append(text if step == "1" else f"({text}) * {step}")
    return " + ".join(parts) or "0"


def _stride_text(tensor: Tensor, dim: int) -> str:
    """Other workloads may have other strides, unless it is the evident one."""
    step = tensor.stride[dim]
    return str(step) if tensor.kind == "tmp" or step in (0, 1) else f"EVO_STRIDE({tensor.name}, {dim})"


def guards_text(guards: Sequence[Guard], ctx: Context) -> str:
    """Whether all of `guards` hold; none of them is about the lane axis."""
    return " && ".join(_guard(guard, ctx) for guard in guards)


def _guard(guard: Guard, ctx: Context) -> str:
    text = affine_text(guard.arg, ctx)
    return f"{text} >= 0" if guard.kind == "ge0" else f"evo::mod<int64_t>({text}, {guard.modulus}) == 0"


def _is_mask(guard: Guard) -> bool:
    return guard.kind == "ge0" and all(isinstance(atom, str) for _, atom in guard.arg.terms)


def _masks(guards: Sequence[Guard], ctx: Context) -> str:
    """Lanes where all of `guards` hold: each changes by the lane axis' factor from one lane to the next."""
    texts = []
    for guard in guards:
        factor = next(c for c, atom in guard.arg.terms if atom == ctx.lane)
        texts.append(f"evo::at_least_0({affine_text(guard.arg, ctx)}, {factor})")
    return " & ".join(texts)


def _beside(load: Load, lane: str, tensors: Mapping[str, Tensor]) -> str | None:
    """How far apart neighbours along `lane` lie, where it is linear although other parts of the address are not.

    A row that is looked up (embedding, gather) has its elements side by side.
    """
    found = []
    for dim, index in enumerate(load.index):
        for factor, atom in index.terms:
            if atom == lane:
                step = _stride_text(tensors[load.tensor], dim)
                found.append(step if factor == 1 else f"{factor} * {step}")
            elif not isinstance(atom, str) and lane in axes_of(Affine(((factor, atom),))):
                return None
    return " + ".join(found) or None


def _phase(load: Load, lane: str, tensors: Mapping[str, Tensor]) -> FloorDiv | None:
    """The quotient by which neighbours along `lane` read consecutive elements, where it is whole.

    A transposed convolution's read: element (at + c) / s where s divides it, nothing elsewhere.
    """
    found = [
        (dim, factor, atom)
        for dim, index in enumerate(load.index)
        for factor, atom in index.terms
        if lane in axes_of(Affine(((factor, atom),)))
    ]
    if len(found) != 1 or tensors[load.tensor].dtype != "f32" or load.other != 0:
        return None
    (dim, factor, atom), guards = found[0], [guard for guard in load.guards if lane in axes_of(guard.arg)]
    whole = [guard for guard in guards if guard.kind == "divides"]
    unit = factor == 1 and tensors[load.tensor].stride[dim] == 1
    if not (isinstance(atom, FloorDiv) and unit and (1, lane) in atom.arg.terms and len(whole) == 1):
        return None
    shift = add(whole[0].arg, scale(atom.arg, -1))
    if shift.terms or shift.const % atom.by or whole[0].modulus != atom.by:
        return None
    if not all(_is_mask(guard) for guard in guards if guard is not whole[0]):
        return None
    return atom if all(isinstance(a, str) for _, a in atom.arg.terms) else None


def _quotients(load: Load, guards: Sequence[Guard], ctx: Context) -> Value:
    """The elements of a `_phase`, where `guards`, those about the lane axis, hold."""
    phase = _phase(load, ctx.lane, ctx.tensors)
    assert phase is not None, "the lane axis is not linear in this address: `can_vectorise` says so"
    index = tuple(Affine(tuple((c, a) for c, a in i.terms if a != phase), i.const) for i in load.index)
    where = _address(replace(load, index=index), ctx)
    place = ctx.pointers[load.tensor] if where == "0" else f"{ctx.pointers[load.tensor]} + {where}"
    held = _masks([guard for guard in guards if guard.kind == "ge0"], ctx) or "evo::take({evo::lanes})"
    first = affine_text(phase.arg, ctx)
    return Value(f"evo::load_quotients({place}, {first}, {phase.by}, n, {held})", True, "f32")


def _difference(op: Op) -> Affine | None:
    """The first minus the second of two positions that are compared; None where that is not linear."""
    sides = []
    for arg in op.args:
        if isinstance(arg, Position):
            sides.append(arg.index)
        elif isinstance(arg, Const) and isinstance(arg.value, int):
            sides.append(const(arg.value))
    if op.name not in _COMPARISONS or len(sides) != 2 or all(isinstance(arg, Const) for arg in op.args):
        return None
    gap = add(sides[0], scale(sides[1], -1))
    return gap if all(isinstance(atom, str) for _, atom in gap.terms) else None


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
    return Value(f"{CTYPES[dtype]}({value.text})", False, dtype)


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
    if ctx.vector and ctx.lane in axes_of(op) and (gap := _difference(op)) is not None:
        return Value(_compared(op.name, gap, ctx), True, "bool", False)
    args = [print_expr(arg, ctx) for arg in op.args]
    vector = any(arg.vector for arg in args)
    dtype = "bool" if op.name in (*_COMPARISONS, "isnan", "isinf") else computed(op.dtype)
    if op.name == "div" and isinstance(op.args[1], Load) and op.args[1].tensor in ctx.reciprocals and dtype == "f32":
        return Value(f"{_wrapped(args[0])} * {ctx.reciprocals[op.args[1].tensor]}", vector, dtype, False)
    if op.name in _INFIX:
        left, right = args
        if dtype == "bool" and left.vector != right.vector and "bool" in (left.dtype, right.dtype):
            return Value(f"{_as_vector(left)} {_INFIX[op.name]} {_as_vector(right)}", vector, dtype, False)
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
)  # fmt: skip
