"""Nests that take turns on one block of rows, so that what they hand on stays in the cache.

Attention is three nests (scores, softmax, weighted values) of the same rows. Chained, one parallel loop goes over
blocks of these rows and all three run inside it; a tensor that only they know becomes a buffer of one block per
thread. FlashAttention (Dao et al. 2022) does so with blocks of keys, too; here a whole row of scores is kept.
Where a causal mask makes everything beyond a row's own position −inf, the loops of a block end behind its last row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from evoforge.lowering.domain import Domain, Node, aligned
from evoforge.lowering.ir import Affine, Const, Expr, Load, Op, Position, Where, nodes

if TYPE_CHECKING:
    from evoforge.lowering.nests import Nest

__all__ = ["Chain", "find_chain"]


@dataclass(frozen=True)
class Chain:
    """`axes` that all nests share, outermost first, of which the last is cut into blocks.

    `private`: tensors of which only one block is kept. `reuse`: such a tensor → another, whose buffer it takes over.
    `ends`: axis → how far beyond a row's own position it matters.
    """

    axes: tuple[str, ...]
    private: frozenset[str]
    reuse: Mapping[str, str] = field(default_factory=dict)
    ends: Mapping[str, int] = field(default_factory=dict)


def find_chain(domain: Domain, nests: Sequence[Nest], others: Sequence[Nest]) -> Chain | None:
    """The chain that `nests` make; None if they have to run one after the other.

    Args:
        others: all other nests of the plan.
    """
    if any(not nest.reduces or nest.chunked or nest.scans for nest in nests):
        return None
    nodes = [_nodes(nest) for nest in nests]
    written = [_written(domain, nest) for nest in nests]
    common = set(nests[0].rows).intersection(*(nest.rows for nest in nests))
    common -= {nest.lane for nest in nests if nest.columns}
    axes = tuple(a for a in nests[0].rows if a in common)
    handed = []
    for number, own in enumerate(nodes):
        mine = {tensor: node for part in written[:number] for tensor, node in part.items()}
        for access in (access for node in own for access in node.reads()):
            if (producer := mine.get(access.tensor)) is not None:
                if not aligned(access, producer):
                    return None
                handed.append(producer)
    if not axes or not handed:
        return None
    for nest in nests:
        if nest.contraction is not None and not nest.contraction.block - set(axes[:-1]):
            return None
    private = _private(domain, axes, handed, others)
    names = {node.name for own in nodes for node in own}
    inside = [node for node in domain.nodes if node.name in names]
    stored = {tensor for part in written for tensor in part}
    ends = {
        axis: beyond
        for axis, beyond in _masked(inside, axes[-1])
        if axis not in axes and _idle_beyond(inside, axis, (axes[-1], axis, beyond), stored - private)
    }
    return Chain(axes, private, _reused(domain, nests, private), ends)


def _private(domain: Domain, axes: tuple[str, ...], handed: Sequence[Node], others: Sequence[Nest]) -> frozenset[str]:
    """Temporaries that nobody else reads and whose blocks lie in one piece."""
    elsewhere = [one.reads for nest in others for one in nest.passes]
    found = set()
    for node in handed:
        outs = {out for out in node.outputs if out}
        alone = all(domain.tensors[out].kind == "tmp" and not any(out in reads for reads in elsewhere) for out in outs)
        if alone and node.axes[: len(axes)] == axes:
            found |= outs
    return frozenset(found)


def _reused(domain: Domain, nests: Sequence[Nest], private: frozenset[str]) -> dict[str, str]:
    """What is stored row by row, where the row of another tensor of its shape has been read for the last time."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    written: set[str] = set()
    for at, nest in enumerate(nests):
        later = {tensor for after in nests[at + 1 :] for one in after.passes for tensor in one.reads}
        for number, one in enumerate(nest.passes if nest.contraction is None else ()):
            stored = [tensor for tensor, how in one.stores if how == "memory" and tensor in private]
            last = len(one.stores) == 1 and not one.reduces and bool(stored) and stored[0] in one.maps[-1].outputs
            still = later | {tensor for after in nest.passes[number + last :] for tensor in after.reads}
            for tensor in stored:
                alike = (old for old in sorted((private & written) - still - taken) if _alike(domain, old, tensor))
                if (old := next(alike, None)) is not None:
                    found[tensor] = found.get(old, old)
                    taken.add(old)
        written |= set(_written(domain, nest))
    return found


def _alike(domain: Domain, a: str, b: str) -> bool:
    one, other = domain.producer(a), domain.producer(b)
    same = one is not None and other is not None and one.axes == other.axes
    return same and domain.tensors[a].dtype == domain.tensors[b].dtype


def _nodes(nest: Nest) -> list[Node]:
    found = {n.name: n for one in nest.passes for n in (*one.heads, *one.nodes, *one.row_maps)}
    return list(found.values())


def _written(domain: Domain, nest: Nest) -> dict[str, Node]:
    """What a nest writes to memory."""
    names = [t for one in nest.passes for t, how in one.stores if how == "memory"]
    names += [t for one in nest.passes for t in one.row_stores]
    return {name: node for name in names if (node := domain.producer(name)) is not None}


# masks

_Mask = tuple[str, str, int]
"""(row, axis, beyond): row + beyond − axis is below 0."""


def _masked(members: Sequence[Node], row: str) -> Iterator[tuple[str, int]]:
    """Axes that some stage compares with the position of the row."""
    parts = [part for node in members for part in nodes(node.body) if isinstance(part, Where)]
    masks = [mask for part in parts if (mask := _mask_of(part.condition)) is not None and mask[0] == row]
    yield from dict.fromkeys(mask[1:] for mask in masks if mask[2] >= 0)


def _mask_of(condition: Expr) -> _Mask | None:
    """What holds where the condition row + beyond − axis >= 0 does not."""
    match condition:
        case Op("ge", (Position(Affine(terms, const)), Const(0))) if sorted(c for c, _ in terms) == [-1, 1]:
            row, axis = (next(str(atom) for c, atom in terms if c == sign) for sign in (1, -1))
            return row, axis, const
    return None


def _idle_beyond(nodes: Sequence[Node], axis: str, mask: _Mask, shared: set[str]) -> bool:
    """Whether nothing is missed where the steps of `axis` that `mask` hides are left out.

    Finite values are taken for granted: 0 · x is 0, and so a hidden value that is not finite does no harm.
    """
    known: dict[str, float | None] = {}
    for node in nodes:
        value = _hidden(node.body, mask, known)
        if axis in node.reduction:
            if (node.monoid, value) not in (("max", -math.inf), ("maxsum", -math.inf), ("sum", 0.0)):
                return False
        elif axis in node.axes:
            if shared & set(node.outputs):
                return False
            known |= {out: value if node.kind == "map" else None for out in node.outputs if out}
    return True


def _hidden(expr: Expr, mask: _Mask, known: Mapping[str, float | None]) -> float | None:
    """−inf or 0 where that is what an expression is behind the mask; None: something else."""
    match expr:
        case Where(condition, _, other) if _mask_of(condition) == mask:
            return _hidden(other, mask, known)
        case Const(value):
            return float(value) if value in (0, -math.inf) else None
        case Load(tensor, guards=()):
            return known.get(tensor)
        case Op(name, args):
            values = [_hidden(arg, mask, known) for arg in args]
            if name == "exp" and values == [-math.inf]:
                return 0.0
            if (name == "sub" and values[0] == -math.inf) or (name == "add" and -math.inf in values):
                return -math.inf
            if (name == "div" and values[0] == 0) or (name == "mul" and 0 in values):
                return 0.0
    return None
