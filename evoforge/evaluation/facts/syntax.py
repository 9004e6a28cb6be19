"""Facts from the text: how many levels of tiles the loops make.

The preprocessed kernel is parsed with tree-sitter and its loops are followed from `evo_run` through
calls of its own functions and lambdas, with integers and addresses as sums of loop variables. A loop
is *tiled* when, in some address, it walks within one step of a loop around it:
``for (jt = 0; jt < N; jt += T) for (j = jt; j < min(jt + T, N); j += …)``, or ``t * T + r`` where T
comes from a parameter (``g * 8 + c`` may as well be the groups of a group norm). Loops that trip
once at most do not count, names do not matter, and code that is never called is not seen.
"""

from __future__ import annotations

from typing import Any

from evoforge.core import Params, Signature
from evoforge.evaluation.build import Builder
from evoforge.evaluation.facts.loops import Loop, Nest, run_nest

__all__ = ["syntax_facts"]

_MAX_BLOCK = 16


def syntax_facts(source: str, params: Params, signature: Signature, builder: Builder) -> dict[str, Any] | None:
    """Tiling facts; None if the text cannot be preprocessed or does not define `evo_run`.

    Returns:
        ``tiles``: most tiled loops on one path of the nest, those of a register block apart;
        ``levels``: the same with 1 more where the path ends in a register block;
        ``register_block``: whether any does; ``nest``: the deepest nest.
    """
    # Parameters are written in a way that the evaluation recognises (see expressions.py), except where they
    # may become part of a name.
    write = str if "##" in source else _marked
    defines = [f"-D{name}={write(value)}" for name, value in sorted(params.items())]
    strides: set[int] = set()
    known = {
        "abi": 1,
        "n_in": len(signature.inputs),
        "n_const": len(signature.constants),
        "n_out": len(signature.outputs),
    }
    groups = (("in", signature.inputs), ("cst", signature.constants), ("out", signature.outputs))
    for group, specs in groups:
        for number, spec in enumerate(specs):
            product = 1
            known[f"{group}[{number}].rank"] = len(spec.shape)
            for dim in reversed(range(len(spec.shape))):
                for what, value in (("size", spec.shape[dim]), ("stride", spec.stride[dim])):
                    defines.append(f"-DEVO_{what.upper()}_{group}{number}_{dim}={value}")
                    known[f"{group}[{number}].{what}[{dim}]"] = value
                product *= spec.shape[dim]
                strides |= {spec.stride[dim], product}
    text = builder.preprocess(source, defines)
    if text is None:
        return None
    lanes = max(1, builder.target.vector_bytes // 4)
    nest = run_nest(text, lanes=lanes, strides=frozenset(strides - {0, 1}), known=known)
    return None if nest is None else _levels(nest)


def _marked(value: int) -> str:
    return f"0{value:o}LL" if value >= 0 else str(value)


def _levels(nest: Nest) -> dict[str, Any]:
    found = {"tiles": 0, "levels": 0, "register_block": False, "nest": 0}

    def visit(loop: Loop, tiles: int, depth: int) -> None:
        block = is_block(loop)
        tiles += loop.tiled and not block and not is_lanes(loop)
        depth += 1
        found["tiles"] = max(found["tiles"], tiles)
        found["levels"] = max(found["levels"], tiles + block)
        found["register_block"] = bool(found["register_block"] or block)
        found["nest"] = max(found["nest"], depth)
        if not block:
            for inner in loop.inner:
                visit(inner, tiles, depth)

    def is_lanes(loop: Loop) -> bool:
        """A vector written as a scalar loop: the compiler makes one instruction of it."""
        return not loop.inner and not loop.vector and loop.exact and 1 < (loop.trip or 0) <= nest.lanes

    def is_block(loop: Loop) -> bool:
        """A few vectors at a time, unrolled into registers; loops inside may block other directions."""
        small = loop.exact and 1 < (loop.trip or 0) <= _MAX_BLOCK
        return small and loop.tiled and loop.vector and all(belongs(inner, loop) for inner in loop.inner)

    def belongs(inner: Loop, block: Loop) -> bool:
        if is_lanes(inner) or is_block(inner):
            return block.symbol not in inner.within
        return not inner.inner and not inner.tiled and inner.exact and (inner.trip or 0) <= _MAX_BLOCK

    for loop in nest.loops:
        visit(loop, 0, 0)
    return found
