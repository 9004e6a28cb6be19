"""The cell that a schedule implies, from what was printed: no build, no run.

It models what the descriptor's facts will say. *Tiling*: on every path of loops, those that walk
within one step of a strided loop around them, where both trip more than once, plus 1 for a register
block. *Memory*: streaming stores of at least a quarter of what is written; else prefetches, or a
buffer of one row that is used again for every row; else vectors; else scalars. *Fusion*: temporaries
that lie whole in the workspace, against those of the fully unfused graph; without any, whether a
tensor is fetched again after the private cache has lost it.
"""

from __future__ import annotations

from collections.abc import Mapping

from evoforge.core import DTYPES, Cell, Params
from evoforge.lowering.cpp import Kernel
from evoforge.lowering.cpp_layout import Sweep
from evoforge.lowering.regions import Nest, is_tensor_sized

__all__ = ["implied_cell"]

_LINE = 64


def implied_cell(
    kernel: Kernel, params: Params, *, unfused: int, lanes: int, l2_bytes: int, traced: Mapping[str, int]
) -> Cell:
    """(tiling, memory, fusion) of a printed kernel at `params`; `traced`: bytes of tensors in the traced run."""
    return (
        _tiling(kernel, params, lanes),
        _memory(kernel, params, lanes),
        _fusion(kernel, params, unfused, lanes, l2_bytes, traced),
    )


def _tiling(kernel: Kernel, params: Params, lanes: int) -> int:
    best = 0
    for sweep in kernel.sweeps:
        step = lanes * (params.get("UNROLL", 1) if sweep.unrolled else 1)
        levels = sum(_tiled(chain, params, step) for chain in sweep.chains)
        best = max(best, levels + (sweep.vector and sweep.unrolled and params.get("UNROLL", 1) > 1))
    for one in kernel.blocks:
        rows, vectors = params["TILE_ROWS"], params["TILE_VECTORS"]
        levels = int(one.packed != "deep" and one.cut > params.get("DEPTH", one.cut))  # a piece's bounds are variables
        levels += vectors > 1 and (one.packed != "block" or one.columns > vectors * lanes)
        levels += rows > 1 and one.packed in ("both", "deep")
        best = max(best, levels, int(rows * vectors > 1))
    return min(best, 3)


def _tiled(chain: list[tuple[int | str, int | str]], params: Params, step: int) -> int:
    """Loops of a chain that trip more than once, the outermost apart."""

    def number(what: int | str) -> int:
        return what if isinstance(what, int) else step if what == "step" else params[what]

    extent = number(chain[0][0]) if chain else 0
    turning = 0
    for walked, by in chain:
        span = min(number(walked), extent)
        turning += span > number(by)
    return max(turning - 1, 0)


def _memory(kernel: Kernel, params: Params, lanes: int) -> int:
    domain = kernel.domain
    outputs = {name: t.numel * DTYPES[t.dtype] for name, t in domain.tensors.items() if t.kind == "out"}
    streamed = {
        name for sweep in kernel.sweeps for name in sweep.streamed if _aligned(kernel, sweep, name, params, lanes)
    }
    if streamed and 4 * sum(outputs[name] for name in streamed) >= sum(outputs.values()):
        return 3
    if any(sweep.prefetched for sweep in kernel.sweeps):
        return 2
    if any(one.packed != "block" for one in kernel.blocks):
        return 2
    if kernel.plan.buffers or any(_shares_lines(kernel, nest, params, lanes) for nest in kernel.plan.nests):
        return 2
    return int(any(sweep.vector for sweep in kernel.sweeps) or bool(kernel.blocks))


def _shares_lines(kernel: Kernel, nest: Nest, params: Params, lanes: int) -> bool:
    """Whether narrow panels of columns write and read the same lines of a temporary in turns."""
    sweeps = [sweep for sweep in kernel.sweeps if any(sweep.one is one for one in nest.passes)]
    width = max((lanes * (params.get("UNROLL", 1) if s.unrolled else 1) if s.vector else 1 for s in sweeps), default=1)
    if not (nest.columns and nest.reduces) or width * 4 >= _LINE:
        return False
    written = {tensor for one in nest.passes for tensor, how in one.stores if how == "memory"} & set(kernel.plan.memory)
    return any(one.reads.get(tensor) == "memory" for one in nest.passes for tensor in written)


def _aligned(kernel: Kernel, sweep: Sweep, tensor: str, params: Params, lanes: int) -> bool:
    producer = kernel.domain.producer(tensor)
    assert producer is not None
    steps = [size.first for _, size in producer.write.terms or ()]
    lane_extent = max((chain[0][0] for chain in sweep.chains if chain and isinstance(chain[0][0], int)), default=0)
    whole = kernel.domain.tensors[tensor].numel
    return (
        whole >= lanes
        and all(step % lanes == 0 or step < (lane_extent or whole) for step in steps if step > 1)
        and (lane_extent >= lanes)
    )


def _nest_bytes(kernel: Kernel, nest: Nest) -> Mapping[str, int]:
    """Bytes of every tensor-sized tensor that a nest reads from memory or writes."""
    domain, found = kernel.domain, {}
    for one in nest.passes:
        for node in one.nodes:
            for access in node.reads():
                if one.reads.get(access.tensor, "memory") == "memory":
                    found[access.tensor] = domain.tensors[access.tensor]
        for tensor, how in one.stores:
            if how == "memory":
                found[tensor] = domain.tensors[tensor]
    return {name: t.numel * DTYPES[t.dtype] for name, t in found.items()}


def _fusion(kernel: Kernel, params: Params, unfused: int, lanes: int, l2_bytes: int, traced: Mapping[str, int]) -> int:
    domain = kernel.domain
    graph_tensors = {n: t.numel * DTYPES[t.dtype] for n, t in domain.tensors.items() if t.kind != "tmp"}
    outputs = max((size for name, size in graph_tensors.items() if domain.tensors[name].kind == "out"), default=0)
    largest = max(graph_tensors.values(), default=1)
    unit = outputs if outputs * 8 >= largest else largest
    outputs = max((size for name, size in traced.items() if name.startswith("out")), default=0)
    small = outputs if outputs * 8 >= max(traced.values(), default=1) else max(traced.values(), default=1)
    stored = sum(
        domain.tensors[name].numel
        * (4 if domain.tensors[name].dtype in ("f16", "bf16") else DTYPES[domain.tensors[name].dtype])
        for name in kernel.plan.memory
    )
    chunks = sum(nest.chunked and is_tensor_sized(domain, nest.rows) for nest in kernel.plan.nests)
    share = chunks + stored / max(unit, 1) + _packed_bytes(kernel, params, lanes, traced) / max(small, 1)
    count = max(round(share), int(share >= 0.2))
    if count:
        return 0 if count >= unfused else 1
    lines = sum(graph_tensors.values())
    if any(sum(traced.get(name, 0) for name in one.narrow) * 4 >= l2_bytes for one in kernel.blocks):
        return 2  # every panel of columns reads the narrow operand again
    return 2 if _fetched_again(kernel, graph_tensors, params, lanes, l2_bytes) > 0.1 * lines else 3


def _packed_bytes(kernel: Kernel, params: Params, lanes: int, traced: Mapping[str, int]) -> int:
    """Bytes of packed operands in the traced run, which is on one thread."""
    found = 0
    for one in kernel.blocks:
        if one.packed != "block":
            depth = one.length if one.packed != "deep" else one.length * params["DEPTH"] // one.cut
            found += one.wides * depth * params["TILE_VECTORS"] * lanes * 4
        if one.packed in ("both", "deep"):
            found += sum(traced.get(name, 0) for name in one.narrow)
    return found


def _fetched_again(kernel: Kernel, sizes: Mapping[str, int], params: Params, lanes: int, l2_bytes: int) -> float:
    """Bytes of inputs and outputs that come from beyond the private cache a second time."""
    largest = max(sizes.values(), default=1)
    scale = min(1.0, 2 * l2_bytes / largest)  # the traced workload is about twice the cache
    again = 0.0
    seen: dict[str, int] = {}
    past: list[Mapping[str, int]] = []
    for number, nest in enumerate(kernel.plan.nests):
        touched = _nest_bytes(kernel, nest)
        past.append(touched)
        for name, size in touched.items():
            if name in seen:
                between: dict[str, int] = {}
                for earlier in past[seen[name] :]:
                    between |= earlier
                if sum(between.values()) * scale > l2_bytes:
                    again += size
            seen[name] = number
        again += _within(kernel, nest, touched, l2_bytes, params, lanes)
    return again


def _within(kernel: Kernel, nest: Nest, touched: Mapping[str, int], l2_bytes: int, params: Params, lanes: int) -> float:
    """Bytes that later passes of one nest fetch again because a row, or a panel, outgrows the cache."""
    domain = kernel.domain
    again = 0.0
    readers: dict[str, int] = {}
    streamed = {name for sweep in kernel.sweeps for name in sweep.streamed}
    for one in nest.passes:
        for name in {
            access.tensor
            for node in one.nodes
            for access in node.reads()
            if one.reads.get(access.tensor, "memory") == "memory"
        }:
            readers[name] = readers.get(name, 0) + 1
            if name in streamed:
                again += touched.get(name, 0)
    if nest.columns:
        row_axes = tuple(a for a in nest.rows if a != nest.lane)
        width = lanes * params.get("UNROLL", 1) * 4
        panel = sum(
            size
            * max(_LINE, width)
            / (4 * max(domain.extents[nest.lane].first, 1) * max(domain.numel(row_axes).first, 1))
            for name, size in touched.items()
            if is_tensor_sized(domain, tuple(a for a, _ in _terms(kernel, name)))
        )
        row = panel
    else:
        rows = domain.numel(nest.rows).first if nest.rows else 1
        row = sum(touched.values()) / max(rows, 1)
    if row > l2_bytes and (nest.rows or nest.reduces):
        again += sum((count - 1) * touched.get(name, 0) for name, count in readers.items() if count > 1)
    return again


def _terms(kernel: Kernel, tensor: str) -> tuple[tuple[str, object], ...]:
    for node in kernel.domain.nodes:
        if tensor in node.outputs:
            return tuple(node.write.terms or ())
        for access in node.reads():
            if access.tensor == tensor:
                return tuple(access.terms or ())
    return ()
