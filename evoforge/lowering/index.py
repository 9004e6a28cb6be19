"""Integer arithmetic on indices: sums, quotients and remainders of loop axes, simplified by range.

`extents` maps every axis name to its size, so an axis lies in [0, size). All functions are exact:
the result equals the plain formula at every point of the domain. Quotients round down and
remainders are non-negative, as in Python.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from evoforge.lowering.ir import Affine, Atom, Cast, Const, Expr, FloorDiv, Guard, Indirect, Load, Mod, Position, parts

__all__ = [
    "Extents",
    "add",
    "affine",
    "axis",
    "bounds",
    "const",
    "evaluated",
    "floordiv",
    "from_memory",
    "linear",
    "mod",
    "names",
    "offset",
    "plain_axis",
    "position",
    "scale",
    "substitute",
]

Extents = Mapping[str, int]
_UNKNOWN = (-math.inf, math.inf)


def const(value: int) -> Affine:
    return Affine((), value)


def axis(name: str) -> Affine:
    return Affine(((1, name),), 0)


def affine(terms: Sequence[tuple[int, Atom]], constant: int = 0) -> Affine:
    """Collects equal atoms, drops zeros, sorts by falling coefficient (so n·HW + h·W + w reads well)."""
    total: dict[Atom, int] = {}
    for factor, atom in terms:
        total[atom] = total.get(atom, 0) + factor
    kept = [(factor, atom) for atom, factor in total.items() if factor]
    return Affine(tuple(sorted(kept, key=lambda term: (-abs(term[0]), repr(term[1])))), constant)


def scale(a: Affine, factor: int) -> Affine:
    return affine([(factor * c, atom) for c, atom in a.terms], factor * a.const)


def add(*parts: Affine) -> Affine:
    """The sum, without recombining quotients and remainders (see `linear`)."""
    return affine([term for part in parts for term in part.terms], sum(part.const for part in parts))


@lru_cache(maxsize=65536)
def names(node: Any) -> frozenset[str]:
    """The axes that an index or an expression depends on."""
    if isinstance(node, Affine):
        return frozenset().union(*({atom} if isinstance(atom, str) else names(atom) for _, atom in node.terms))
    return frozenset().union(*map(names, node if isinstance(node, tuple) else parts(node)))


def from_memory(a: Affine) -> bool:
    """Whether some part of an index is read from memory."""
    return any(isinstance(at, Indirect) or (not isinstance(at, str) and from_memory(at.arg)) for _, at in a.terms)


def evaluated(a: Affine, at: Mapping[str, npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    """The index at points of its axes, with arrays that broadcast; no part of it is read from memory."""
    total = np.full(1, a.const)
    for factor, atom in a.terms:
        assert not isinstance(atom, Indirect)
        if isinstance(atom, str):
            part = at[atom]
        else:
            inner = evaluated(atom.arg, at)
            part = inner // atom.by if isinstance(atom, FloorDiv) else inner % atom.by
        total = total + factor * part
    return total


def plain_axis(a: Affine) -> str | None:
    """The axis if `a` is exactly one axis with coefficient 1 and no constant."""
    if a.const == 0 and len(a.terms) == 1 and a.terms[0][0] == 1 and isinstance(a.terms[0][1], str):
        return a.terms[0][1]
    return None


def position(expr: Expr) -> Affine | None:
    """The index whose value `expr` is, if it is a position, or a whole number that all workloads share."""
    if isinstance(expr, Position):
        return expr.index
    if isinstance(expr, Const) and isinstance(expr.value, int) and not expr.sizes:
        return const(int(expr.value))
    return None


def bounds(a: Affine, extents: Extents) -> tuple[float, float]:
    """Smallest and largest value, both included; infinite where an index is read from memory."""
    low: float = a.const
    high: float = a.const
    for factor, atom in a.terms:
        least, most = _atom_bounds(atom, extents)
        low += min(factor * least, factor * most)
        high += max(factor * least, factor * most)
    return low, high


def _atom_bounds(atom: Atom, extents: Extents) -> tuple[float, float]:
    if isinstance(atom, str):
        return (0, max(extents[atom] - 1, 0)) if atom in extents else _UNKNOWN
    if isinstance(atom, Indirect):
        return _UNKNOWN
    low, high = bounds(atom.arg, extents)
    if isinstance(atom, FloorDiv):
        return (low // atom.by, high // atom.by) if math.isfinite(high - low) else _UNKNOWN
    return (low, high) if low >= 0 and high < atom.by else (0, atom.by - 1)


def _within(a: Affine, size: int, extents: Extents) -> bool:
    low, high = bounds(a, extents)
    return low >= 0 and high < size


def _multiple_and_rest(a: Affine, by: int) -> tuple[Affine, Affine]:
    """a = by · multiple + rest, rest without terms that `by` divides, its constant in [0, by)."""
    multiple = affine([(c // by, atom) for c, atom in a.terms if c % by == 0], a.const // by)
    rest = affine([(c, atom) for c, atom in a.terms if c % by], a.const % by)
    return multiple, rest


def _grouped(a: Affine, by: int, extents: Extents) -> tuple[int, Affine, Affine] | None:
    """(g, high, low) with a = g · high + low, g > 1 a divisor of `by`, low in [0, g); None if there is none."""
    divisors = {math.gcd(by, c) for c, _ in a.terms} - {1}
    for g in sorted(divisors, reverse=True):
        high, low = _multiple_and_rest(a, g)
        if high.terms and _within(low, g, extents):
            return g, high, low
    return None


def floordiv(a: Affine, by: int, extents: Extents) -> Affine:
    """⌊a / by⌋, by > 0."""
    if by == 1:
        return a
    multiple, rest = _multiple_and_rest(a, by)
    if _within(rest, by, extents):
        return multiple
    group = _grouped(rest, by, extents)
    if group is not None:
        g, high, _ = group
        return add(multiple, floordiv(high, by // g, extents))
    if len(rest.terms) == 1 and rest.terms[0][0] == 1:
        atom = rest.terms[0][1]
        if isinstance(atom, FloorDiv):  # ⌊(⌊x/p⌋ + c) / q⌋ = ⌊(x + p·c) / (p·q)⌋
            inner = add(atom.arg, const(rest.const * atom.by))
            return add(multiple, floordiv(inner, atom.by * by, extents))
        if isinstance(atom, Mod) and rest.const == 0 and atom.by % by == 0:
            return add(multiple, mod(floordiv(atom.arg, by, extents), atom.by // by, extents))
    return add(multiple, affine([(1, FloorDiv(rest, by))]))


def mod(a: Affine, by: int, extents: Extents) -> Affine:
    """a − by · ⌊a / by⌋, by > 0."""
    if by == 1:
        return const(0)
    _, rest = _multiple_and_rest(a, by)
    if _within(rest, by, extents):
        return rest
    group = _grouped(rest, by, extents)
    if group is not None:
        g, high, low = group
        return add(scale(mod(high, by // g, extents), g), low)
    if len(rest.terms) == 1 and rest.terms[0][0] == 1 and rest.const == 0:
        atom = rest.terms[0][1]
        if isinstance(atom, Mod) and atom.by % by == 0:
            return mod(atom.arg, by, extents)
    return affine([(1, Mod(rest, by))])


def linear(a: Affine, extents: Extents) -> Affine:
    """Puts quotients and remainders of the same thing together again: k·(x // k) + x % k → x."""
    changed = True
    while changed:
        changed = False
        present = {atom: c for c, atom in a.terms}
        for c, atom in a.terms:
            if not isinstance(atom, Mod):
                continue
            quotient = floordiv(atom.arg, atom.by, extents)
            needed = [(c * atom.by * q, part) for q, part in quotient.terms]
            if needed and all(present.get(part) == factor for factor, part in needed):
                # c·(x % k) = c·x − c·k·⌊x / k⌋, and the quotients cancel
                a = add(a, affine([(-c, atom)]), scale(atom.arg, c), scale(quotient, -c * atom.by))
                changed = True
                break
    return a


def offset(index: Sequence[Affine], stride: Sequence[int], extents: Extents) -> Affine:
    """Where an element lies in memory, in elements: Σ strideᵢ · indexᵢ, recombined.

    A contiguous tensor read through a reshape comes out clean: with index (j // W, j % W) and
    stride (W, 1) the offset is j.
    """
    return linear(add(*(scale(a, step) for a, step in zip(index, stride, strict=True))), extents)


def substitute(node: Any, values: Mapping[str, Affine], extents: Extents) -> Any:
    """`node` with axes replaced by affine forms over `extents`, every index simplified again.

    Works on indices, guards and expressions. Axes of size 1 become 0, guards that always hold are
    dropped, and a cast of a cast to the same dtype is one cast.
    """
    if isinstance(node, Affine):
        terms = [scale(_atom(atom, values, extents), c) for c, atom in node.terms]
        return linear(add(const(node.const), *terms), extents)
    if isinstance(node, tuple):
        return tuple(substitute(item, values, extents) for item in node)
    if isinstance(node, Load):
        guards = tuple(guard for guard in substitute(node.guards, values, extents) if not _always(guard, extents))
        return Load(node.tensor, substitute(node.index, values, extents), tuple(dict.fromkeys(guards)), node.other)
    if within := parts(node):
        made = type(node)(*[substitute(part, values, extents) for part in within])
        if isinstance(made, Cast) and isinstance(made.arg, Cast) and made.arg.dtype == made.dtype:
            return made.arg
        return made
    return node


def _atom(atom: Atom, values: Mapping[str, Affine], extents: Extents) -> Affine:
    if isinstance(atom, str):
        value = values.get(atom)
        if value is not None:
            return value
        return const(0) if extents.get(atom) == 1 else axis(atom)
    if isinstance(atom, Indirect):
        return affine([(1, Indirect(substitute(atom.value, values, extents)))])
    arg = substitute(atom.arg, values, extents)
    return floordiv(arg, atom.by, extents) if isinstance(atom, FloorDiv) else mod(arg, atom.by, extents)


def _always(guard: Guard, extents: Extents) -> bool:
    if guard.kind == "divides":
        return mod(guard.arg, guard.modulus, extents) == const(0)
    return bounds(guard.arg, extents)[0] >= 0
