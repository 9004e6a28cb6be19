"""What can be computed for a vector of neighbours along one axis, the lane axis."""

from __future__ import annotations

from collections.abc import Mapping

from evoforge.lowering.domain import Node
from evoforge.lowering.index import add, position, scale
from evoforge.lowering.index import names as axes_of
from evoforge.lowering.ir import (
    Affine,
    Atom,
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
from evoforge.lowering.stages import dtype_of

__all__ = [
    "COMPARISONS", "INTS", "NEAR", "beside", "can_compare", "can_vectorise", "computed", "difference", "is_exact",
    "is_mask", "is_plain", "is_truth", "is_whole", "moves", "phase", "stride_text",
]  # fmt: skip

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_FLOATS = ("f32", "f16", "bf16")
_SMALL_INTS = ("i8", "u8", "i16", "i32")
INTS = (*_SMALL_INTS, "i64")
_BITWISE = ("and", "or", "xor", "shr")
_MOST = 2**31 - 1
NEAR = 4
"""Elements at most so far apart are chosen from as many vectors, and not gathered (`EVO_NEAR` in the header)."""


def computed(dtype: str) -> str:
    """The dtype that values of `dtype` are computed in: halves in f32."""
    return "f32" if dtype in _FLOATS else dtype


def can_vectorise(expr: Expr, lane: str, node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Whether `expr` can be computed for a vector of neighbours along `lane`."""
    if lane not in axes_of(expr):
        return True
    if isinstance(expr, Load):
        access = node.accesses[expr]
        masked = [guard for guard in expr.guards if lane in axes_of(guard.arg)]
        dtype = tensors[expr.tensor].dtype
        if access.terms is None and beside(expr, lane, tensors) is None:
            return phase(expr, lane, tensors) is not None or _is_looked_up(expr, lane, node, tensors)
        if not all(is_mask(guard) and dtype == "f32" for guard in masked):
            return False
        return dtype in _FLOATS or (dtype == "bool" and access.terms is not None and access.step(lane) == 1)
    if isinstance(expr, Op) and (difference(expr) is not None or can_compare(expr, lane, node, tensors)):
        return True
    if isinstance(expr, Op):
        kinds = [expr.dtype, *(dtype_of(arg, tensors) for arg in expr.args)]
        return all(k in (*_FLOATS, "bool") for k in kinds) and all(
            can_vectorise(a, lane, node, tensors) for a in expr.args
        )
    if isinstance(expr, Position):
        return computed(expr.dtype) == "f32" and all(isinstance(atom, str) for _, atom in expr.index.terms)
    if isinstance(expr, Cast):
        if isinstance(expr.arg, Position):
            return computed(expr.dtype) == "f32" and all(isinstance(atom, str) for _, atom in expr.arg.index.terms)
        if isinstance(expr.arg, Load) and tensors[expr.arg.tensor].dtype in _SMALL_INTS:
            plain = node.accesses[expr.arg].terms is not None and not expr.arg.guards
            return plain and computed(expr.dtype) == "f32"
        if computed(expr.dtype) == "f32" and dtype_of(expr.arg, tensors) in INTS:
            fits = is_plain if dtype_of(expr.arg, tensors) in _SMALL_INTS else is_exact
            return is_whole(expr.arg, lane, node, tensors) and fits(expr.arg, lane, node, tensors)
        kinds = [expr.dtype, dtype_of(expr.arg, tensors)]
        return all(k in (*_FLOATS, "bool") for k in kinds) and can_vectorise(expr.arg, lane, node, tensors)
    if isinstance(expr, Where):
        parts = (expr.condition, expr.then, expr.other)
        return expr.dtype in (*_FLOATS, "bool") and all(can_vectorise(part, lane, node, tensors) for part in parts)
    return False


def moves(lane: str, factor: int, atom: Atom) -> bool:
    """Whether a term of an index differs from lane to lane."""
    return lane in axes_of(Affine(((factor, atom),)))


def is_mask(guard: Guard) -> bool:
    return guard.kind == "ge0" and all(isinstance(atom, str) for _, atom in guard.arg.terms)


def stride_text(tensor: Tensor, dim: int) -> str:
    """Other workloads may have other strides, unless it is the evident one."""
    step = tensor.stride[dim]
    return str(step) if tensor.kind == "tmp" or step in (0, 1) else f"EVO_STRIDE({tensor.name}, {dim})"


def beside(load: Load, lane: str, tensors: Mapping[str, Tensor]) -> str | None:
    """How far apart neighbours along `lane` lie, where it is linear although other parts of the address are not.

    A row that is looked up (embedding, gather) has its elements side by side.
    """
    found = []
    for dim, index in enumerate(load.index):
        for factor, atom in index.terms:
            if atom == lane:
                step = stride_text(tensors[load.tensor], dim)
                found.append(step if factor == 1 else f"{factor} * {step}")
            elif not isinstance(atom, str) and moves(lane, factor, atom):
                return None
    return " + ".join(found) or None


def phase(load: Load, lane: str, tensors: Mapping[str, Tensor]) -> FloorDiv | None:
    """The quotient by which neighbours along `lane` read consecutive elements, where it is whole.

    A transposed convolution's read: element (at + c) / s where s divides it, nothing elsewhere.
    """
    found = [
        (dim, factor, atom)
        for dim, index in enumerate(load.index)
        for factor, atom in index.terms
        if moves(lane, factor, atom)
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
    if not all(is_mask(guard) for guard in guards if guard is not whole[0]):
        return None
    return atom if all(isinstance(a, str) for _, a in atom.arg.terms) else None


def _is_looked_up(load: Load, lane: str, node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Whether neighbours along `lane` are where whole numbers that are read say (gather, sparse rows), or quotients and
    remainders of positions."""
    tensor = tensors[load.tensor]
    if tensor.dtype not in _FLOATS or max(tensor.numel, *tensor.shape) >= _MOST:
        return False
    for factor, atom in (term for index in load.index for term in index.terms):
        if atom == lane or not moves(lane, factor, atom):
            continue
        if isinstance(atom, FloorDiv | Mod):
            if not all(isinstance(part, str) for _, part in atom.arg.terms):
                return False
        elif not isinstance(atom, Indirect) or not is_whole(atom.value, lane, node, tensors):
            return False
    return all(is_mask(guard) for guard in load.guards if lane in axes_of(guard.arg))


def is_whole(expr: Expr, lane: str, node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Whether `expr` is whole numbers that make a vector of 32 bits each, as all indices do."""
    if lane not in axes_of(expr):
        return dtype_of(expr, tensors) in INTS
    if isinstance(expr, Position):
        return all(isinstance(atom, str) for _, atom in expr.index.terms)
    if isinstance(expr, Load):
        plain = node.accesses[expr].terms is not None and not expr.guards
        return plain and tensors[expr.tensor].dtype in INTS
    if isinstance(expr, Cast) and is_truth(expr.arg, lane, node, tensors):
        return expr.dtype in INTS
    if isinstance(expr, Cast) and dtype_of(expr.arg, tensors) in _FLOATS:
        return expr.dtype in _SMALL_INTS and can_vectorise(expr.arg, lane, node, tensors)
    if isinstance(expr, Cast):
        return expr.dtype in ("i32", "i64") and is_whole(expr.arg, lane, node, tensors)
    if isinstance(expr, Op):
        parts = all(is_whole(arg, lane, node, tensors) for arg in expr.args)
        return expr.name in ("add", "sub", "mul", "abs", "max", "min", *_BITWISE) and parts
    if isinstance(expr, Where):
        parts = is_whole(expr.then, lane, node, tensors) and is_whole(expr.other, lane, node, tensors)
        return parts and can_vectorise(expr.condition, lane, node, tensors)
    return False


def is_truth(expr: Expr, lane: str, node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Whether `expr` is truth values that make a vector."""
    return dtype_of(expr, tensors) == "bool" and can_vectorise(expr, lane, node, tensors)


def is_exact(expr: Expr, lane: str, node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Whether whole numbers that make a vector need no more than 32 bits."""
    if isinstance(expr, Position | Const):
        return is_whole(expr, lane, node, tensors) and _is_inside(expr)
    if lane not in axes_of(expr):
        return dtype_of(expr, tensors) in _SMALL_INTS
    if not is_whole(expr, lane, node, tensors):
        return False
    if isinstance(expr, Load):
        return dtype_of(expr, tensors) in _SMALL_INTS
    if isinstance(expr, Cast):
        made = dtype_of(expr.arg, tensors) not in INTS
        return made or is_exact(expr.arg, lane, node, tensors)
    if isinstance(expr, Op) and not (expr.dtype == "i32" or expr.name in (*_BITWISE, "max", "min")):
        return False  # 32 bits overflow as torch's do, no others
    parts = expr.args if isinstance(expr, Op) else (expr.then, expr.other) if isinstance(expr, Where) else ()
    return all(is_exact(part, lane, node, tensors) for part in parts)


def is_plain(expr: Expr, lane: str, node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Whether whole numbers are exact in 32 bits, or as they were read and brought there by saturation, or chosen
    among such."""
    if lane not in axes_of(expr) or is_exact(expr, lane, node, tensors):
        return True
    if isinstance(expr, Op | Where):
        parts = expr.args if isinstance(expr, Op) else (expr.then, expr.other)
        chosen = isinstance(expr, Where) or expr.name in ("max", "min")
        return chosen and all(is_plain(part, lane, node, tensors) for part in parts)
    return is_whole(expr, lane, node, tensors) and isinstance(_uncast(expr), Load)


def can_compare(op: Op, lane: str, node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Whether two whole numbers can be compared in 32 bits: where neither is longer, or one is not at the ends."""
    if op.name not in COMPARISONS:
        return False
    plain = all(is_plain(arg, lane, node, tensors) for arg in op.args)
    if not plain or not all(is_whole(arg, lane, node, tensors) for arg in op.args):
        return False
    exact = [is_exact(_uncast(arg), lane, node, tensors) for arg in op.args]
    kinds = [dtype_of(_uncast(arg), tensors) for arg in op.args]
    return all(exact) or any(
        kind in ("i8", "u8", "i16") or _is_inside(_uncast(arg)) for kind, arg in zip(kinds, op.args, strict=True)
    )


def _uncast(expr: Expr) -> Expr:
    """Without casts to longer integers."""
    return _uncast(expr.arg) if isinstance(expr, Cast) and expr.dtype == "i64" else expr


def _is_inside(expr: Expr) -> bool:
    return isinstance(expr, Position) or (isinstance(expr, Const) and not expr.sizes and abs(expr.value) < _MOST)


def difference(op: Op) -> Affine | None:
    """The first minus the second of two positions that are compared; None where that is not linear."""
    if op.name not in COMPARISONS or all(isinstance(arg, Const) for arg in op.args):
        return None
    first, second = map(position, op.args)
    if first is None or second is None:
        return None
    gap = add(first, scale(second, -1))
    return gap if all(isinstance(atom, str) for _, atom in gap.terms) else None
