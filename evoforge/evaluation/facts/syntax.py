"""Facts from the text: how many levels of tiles the loops make.

The preprocessed kernel is parsed with tree-sitter and its loops are followed from `evo_run` through
calls of its own functions and lambdas, with integers and addresses as sums of loop variables. A loop
is *tiled* when, in some address, it walks within one step of a loop around it:
``for (jt = 0; jt < N; jt += T) for (j = jt; j < min(jt + T, N); j += …)``, or ``t * T + r`` where T
comes from a parameter (``g * 8 + c`` may as well be the groups of a group norm). Loops that trip
once at most do not count, names do not matter, and code that is never called is not seen.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evoforge.core import Params, Signature
from evoforge.evaluation.facts.loops import Loop, Nest, run_nest
from evoforge.evaluation.targets import find_compiler

__all__ = ["preprocess", "syntax_facts"]

_MAX_BLOCK = 16
_PROLOGUE = """#define EVO_SIZE(tensor, dim) (EVO_SIZE_##tensor##_##dim)
#define EVO_STRIDE(tensor, dim) (EVO_STRIDE_##tensor##_##dim)
"""


def preprocess(source: str, defines: Sequence[str], compiler: str) -> str | None:
    """The kernel's own text with its macros and conditionals resolved; None if that fails.

    What it includes is left out, so that headers neither cost time nor hide the kernel.
    """
    own = [
        "" if line.lstrip().startswith("#") and line.lstrip("# \t").startswith("include") else line
        for line in source.splitlines()
    ]
    command = [compiler, "-E", "-P", "-w", "-std=gnu++17", "-x", "c++", *defines, "-"]
    try:
        done = subprocess.run(
            command, input=_PROLOGUE + "\n".join(own) + "\n", capture_output=True, text=True, errors="replace",
            timeout=10, check=False, cwd=Path("/"), env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    # The grammar takes a pragma for a statement: it would stand for the body of an unbraced loop.
    return "\n".join(line for line in done.stdout.splitlines() if not line.lstrip().startswith("#"))


def syntax_facts(source: str, params: Params, signature: Signature, vector_bytes: int) -> dict[str, Any] | None:
    """Tiling facts; None if the text cannot be preprocessed or does not define `evo_run`.

    Returns:
        ``tiles``: most tiled loops on one path of the nest, those of a register block apart;
        ``levels``: the same with 1 more where the path ends in a register block;
        ``register_block``: whether any does; ``nest``: the deepest nest.
    """
    # Parameters are written in a way that the evaluation recognises (see expressions.py).
    defines = [f"-D{name}={_marked(value)}" for name, value in sorted(params.items())]
    strides: set[int] = set()
    for spec in (*signature.inputs, *signature.constants, *signature.outputs):
        product = 1
        for dim in reversed(range(len(spec.shape))):
            defines.append(f"-DEVO_SIZE_{spec.name}_{dim}={spec.shape[dim]}")
            defines.append(f"-DEVO_STRIDE_{spec.name}_{dim}={spec.stride[dim]}")
            product *= spec.shape[dim]
            strides |= {spec.stride[dim], product}
    text = preprocess(source, defines, find_compiler())
    if text is None:
        return None
    nest = run_nest(text, lanes=max(1, vector_bytes // 4), strides=frozenset(strides - {0, 1}))
    if nest is None:
        return None
    return _levels(nest)


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
