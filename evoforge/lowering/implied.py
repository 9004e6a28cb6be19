"""The cell that a schedule implies, from what was printed: no build, no run.

It models what the descriptor's facts will say, from the printed loops and addresses at known sizes.
*Tiling*: on every path of loops, those that walk within one step of a loop around them, plus 1 for a
register block. *Memory*: streaming stores of at least a quarter of what is written; else prefetches, or
scratch that is used again and again; else vectors; else scalars. *Fusion*: what goes to scratch, in units
of the largest tensor, against the temporaries of the unfused graph; where nothing does, whether tensors
are fetched again after the private cache has lost them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from evoforge.core import Cell, Params, Signature
from evoforge.lowering.cpp import Kernel
from evoforge.lowering.linear import Scope
from evoforge.lowering.tiles import is_unrolled, levels, vectors_per_trip
from evoforge.lowering.traffic import Flow, traffic
from evoforge.lowering.walked import Place, Walk, walk

__all__ = ["Machine", "implied_cell"]

_FIELDS = {"welford": 3, "maxsum": 2, "argmax": 2, "argmin": 2}
_BYTES = {"float": 4, "double": 8, "bool": 1, "evo::bf16": 2} | {
    f"{u}int{n}_t": n // 8 for n in (8, 16, 32, 64) for u in ("", "u")
}
_TYPE = re.compile(r"evo::(\w+)<(.+)>$")
_TILE = re.compile(r" *evo::vec (\w+_tile)\[(TILE_ROWS\w*)\]\[(TILE_VECTORS\w*)\] = {}")  # sums of pieces: on the stack
_REGISTER_FILE = 512
_TENSOR_SHARE = 0.2
_REREAD = 1.1


@dataclass(frozen=True)
class Machine:
    """Floats in a vector, bytes of a core's private cache."""

    lanes: int
    l2_bytes: int


def implied_cell(
    kernel: Kernel, params: Params, machine: Machine, *, unfused: int, whole: Signature, traced: Signature
) -> Cell:
    """(tiling, memory, fusion) of a printed kernel at `params`.

    Args:
        unfused: how many tensor-sized temporaries there are when nothing is fused.
        whole, traced: the sizes that are built, and those of the instrumented run.
    """
    built = _walked(kernel, params, machine, whole)
    run = built if traced == whole else _walked(kernel, params, machine, traced)
    flows = traffic(run, machine.l2_bytes, machine.lanes)
    return _tiling(built, whole, machine), _memory(built, run, flows, machine), _fusion(flows, traced, unfused)


def _walked(kernel: Kernel, params: Params, machine: Machine, signature: Signature) -> Walk:
    specs = (*signature.inputs, *signature.constants, *signature.outputs)
    sizes = {("EVO_SIZE", spec.name, dim): size for spec in specs for dim, size in enumerate(spec.shape)}
    sizes |= {("EVO_STRIDE", spec.name, dim): step for spec in specs for dim, step in enumerate(spec.stride)}
    scope = Scope(sizes, params, machine.lanes)
    places = {spec.name: Place(spec.name, spec.itemsize, spec.nbytes, False) for spec in specs}
    for piece in kernel.pieces:
        itemsize = _itemsize(piece["type"], machine.lanes)
        count = scope.number(piece["count"]) or 0
        places[piece["name"]] = Place(piece["name"], itemsize, int(count) * itemsize, True)
    for line in kernel.body:
        if found := _TILE.match(line):
            name, rows, vectors = found.groups()
            nbytes = params[rows] * params[vectors] * 4 * machine.lanes
            places[name] = Place(name, 4 * machine.lanes, nbytes, True)
    lets = [*kernel.names.definitions(), *(f"{name} = {condition}" for condition, name in kernel.flags.items())]
    return walk(kernel.body, scope, places, lets)


def _itemsize(ctype: str, lanes: int) -> int:
    found = _TYPE.match(ctype)
    if found:
        return _FIELDS.get(found.group(1), 1) * _itemsize(found.group(2), lanes)
    return 4 * lanes if ctype in ("evo::vec", "evo::ivec") else _BYTES[ctype]


def _tiling(root: Walk, whole: Signature, machine: Machine) -> int:
    strides = set()
    for spec in (*whole.inputs, *whole.constants, *whole.outputs):
        product = 1
        for dim in reversed(range(len(spec.shape))):
            product *= spec.shape[dim]
            strides |= {spec.stride[dim], product}
    found = levels(root, frozenset(strides - {0, 1}), machine.lanes)
    most = max(found.depth - 1, 0)
    plain = min(found.tiles, most)
    if found.block:
        return min(max(min(found.levels - 1, most) + 1, plain), 3)
    unrolled = any(vectors_per_trip(loop, machine.lanes) >= 2 for loop in root.inner)
    return min(plain + unrolled, 3)


def _memory(built: Walk, run: Walk, flows: list[Flow], machine: Machine) -> int:
    tensors = [flow for flow in flows if not flow.place.scratch]
    written = sum(flow.written for flow in tensors)
    if 4 * sum(flow.written for flow in tensors if flow.streams) >= max(written, 1):
        return 3
    read = sum(flow.touched for flow in tensors if flow.loads)
    if _prefetched(run, 1.0) >= read / 16 > 0:
        return 2
    largest = max((flow.touched for flow in tensors), default=1.0)
    staged = [flow for flow in flows if flow.staged]
    if sum(f.staged for f in staged) >= 0.5 * largest and sum(f.touched for f in staged) > _REGISTER_FILE:
        return 2
    wide, narrow = _moved(built, machine.lanes, [])
    return int(wide > narrow)


def _prefetched(loop: Walk, times: float) -> float:
    """Bytes of lines of tensors that are prefetched."""
    times *= loop.trips
    found = sum(64 * times for t in loop.touches if t.access.kind == "prefetch" and not t.place.scratch)
    return found + sum(_prefetched(inner, times) for inner in loop.inner)


def _moved(loop: Walk, lanes: int, around: list[Walk]) -> tuple[float, float]:
    """Bytes of contiguous vectors and of scalars, each weighed by ten to the depth of its loop.

    A load stands where the compiler moves it: in the innermost loop on which its place depends, but not out of
    one that stores.
    """
    wide = narrow = 0.0
    for touch in {touch.access: touch for touch in loop.touches if touch.access.kind != "prefetch"}.values():
        mine = around
        while mine and touch.access.kind == "load" and not mine[-1].stores and not touch.depends_on(mine[-1]):
            mine = mine[:-1]
        nbytes = touch.place.itemsize * _weight(mine)
        if touch.place.itemsize >= 4 * lanes:
            wide += nbytes
        elif touch.access.wide and not touch.gathers:
            wide += nbytes * lanes
        else:
            narrow += nbytes
    for inner in loop.inner:
        more = _moved(inner, lanes, [*around, inner])
        wide, narrow = wide + more[0], narrow + more[1]
    return wide, narrow


def _weight(loops: list[Walk]) -> float:
    weight = 1.0
    for before, loop in zip([None, *loops], loops, strict=False):
        again = before is not None and before.collapsed and loop.collapsed
        weight *= loop.count if is_unrolled(loop) else 1 if again else 10
    return weight


def _fusion(flows: list[Flow], traced: Signature, unfused: int) -> int:
    outputs = max((spec.numel * max(4, spec.itemsize) for spec in traced.outputs), default=1)
    specs = (*traced.inputs, *traced.constants, *traced.outputs)
    largest = max((spec.numel * max(4, spec.itemsize) for spec in specs), default=1)
    unit = max(1, outputs if outputs * 8 >= largest else largest)
    stored = sum(flow.dirtied for flow in flows if flow.place.scratch) / unit
    count = max(round(stored), int(stored >= _TENSOR_SHARE))
    if count:
        return 0 if count >= unfused else 1
    tensors = [flow for flow in flows if not flow.place.scratch]
    touched: dict[str, float] = {}
    for flow in tensors:
        touched[flow.place.name] = max(touched.get(flow.place.name, 0.0), flow.touched)
    return 3 if sum(flow.fetched for flow in tensors) <= _REREAD * sum(touched.values()) else 2
