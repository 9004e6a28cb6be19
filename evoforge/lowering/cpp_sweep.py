"""Sweeps over the inner axes: tile loops, the loop over lanes, and the body inside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from evoforge.core import Parameter
from evoforge.lowering.cpp_body import Body, ctype_of, in_brackets, in_lanes, short_name
from evoforge.lowering.cpp_expr import CTYPES, Context, Value, print_expr
from evoforge.lowering.cpp_layout import Loop
from evoforge.lowering.cpp_prefetch import prefetches
from evoforge.lowering.domain import Access, Node
from evoforge.lowering.ir import loads
from evoforge.lowering.lanes import computed
from evoforge.lowering.nests import Pass

__all__ = ["SweepPrinter", "powers"]

_TILE_NAMES = {0: (), 1: ("tile",), 2: ("panel", "tile"), 3: ("block", "panel", "tile")}
_TILE_PARAMETERS = {0: (), 1: ("TILE",), 2: ("TILE2", "TILE"), 3: ("TILE3", "TILE2", "TILE")}


class SweepPrinter(Body):
    """The loops of a pass and what they do."""

    def lane_heads(self, lane: Loop, vector: bool, start: str = "0", top: str = "") -> list[str]:
        """Tile loops and the loop over the lane axis; `start` and `top` bound them where they are in a chunk."""
        step = "UNROLL * evo::lanes" if vector and self.schedule.unroll else "evo::lanes" if vector else "1"
        heads, end = [], top or self.end(lane)
        inside = start != "0"
        room = (
            min(lane.extent, max(self.kernel.parameters[self.kernel.own["CHUNK"]].choices)) if inside else lane.extent
        )
        levels = min(self.schedule.tile, tile_levels(room, self.lanes, vector, self.schedule.unroll))
        if vector and self.schedule.unroll:
            self.unroll_parameter()
        for name, parameter in zip(
            _TILE_NAMES[levels], self._tile_parameters(levels, room, vector, inside), strict=True
        ):
            heads.append(f"for (int64_t {name} = {start}; {name} < {end}; {name} += {parameter})")
            start, end = name, f"evo::min({name} + {parameter}, {end})"
        advance = f"++{lane.var}" if step == "1" else f"{lane.var} += {step}"
        heads.append(f"for (int64_t {lane.var} = {start}; {lane.var} < {end}; {advance})")
        return heads

    def _tile_parameters(self, levels: int, extent: int, vector: bool, inside: bool) -> list[str]:
        """The sizes of tiles, the largest first: whole steps each; `inside` a chunk smaller than it."""
        names = _TILE_PARAMETERS[levels]
        smallest = 2 * self.lanes if vector else 4
        choices = tuple(c for c in powers(smallest, 1 << 20) if c < extent)
        spread = [choices[round((k + 1) * len(choices) / (levels + 1) - 0.5)] for k in reversed(range(levels))]
        requires = [f"{larger} > {smaller}" for larger, smaller in pairwise(names)]
        if levels and vector and self.schedule.unroll:
            requires.append(f"TILE >= {2 * self.lanes} * UNROLL")
        if levels and inside:
            requires.insert(1, f"CHUNK > {names[0]}")
        self.kernel.tied([Parameter(*one, choices) for one in zip(names, spread, strict=True)], requires)
        return [self.kernel.own[name] for name in names]

    def whole(self, lane: Loop) -> str:
        if lane.group[-1] in self.ends:
            return "false"
        step = "(UNROLL * evo::lanes)" if self.schedule.unroll else "evo::lanes"
        return self.kernel.flag("whole", f"{lane.size} % {step} == 0")

    def position_in_step(self, lane: Loop) -> None:
        """Where vector u of a step stands, and how many of its lanes take part."""
        number = f"n = evo::part({self.end(lane)} - at, {self.whole(lane)})"
        self.w(f"const int64_t at = {lane.var} + u * evo::lanes, {number};")

    def sweep(
        self,
        one: Pass,
        ctx: Context,
        inner: Sequence[Loop],
        late: Sequence[Node],
        number: int,
        start: str = "",
        top: str = "",
    ) -> None:
        """The loops of a pass and their body."""
        lane = inner[-1] if inner else None
        heads = []
        for position, loop in enumerate(inner[:-1]):
            first, end = (start, top) if position == 0 and start else ("0", self.end(loop))
            heads.append(f"for (int64_t {loop.var} = {first}; {loop.var} < {end}; ++{loop.var})")
        if lane is not None:
            bounds = (start, top) if start and len(inner) == 1 else ("0", "")
            heads += self.lane_heads(lane, ctx.vector, *bounds)
        if not self.rows and heads and not start and not one.reduces:
            self.pragma(1)
        unrolled = self.unroll_heads(ctx.vector) if lane is not None else []
        if lane is not None and unrolled:
            with self.loops(heads):
                self._unrolled(one, ctx, late, number, inner, unrolled)
                self.step_done()
            self.sums_done()
            return
        with self.loops(heads):
            if lane is not None and ctx.vector:
                self.w(f"const int64_t n = evo::part({self.end(lane)} - {lane.var}, {self.whole(lane)});")
            elif lane is not None:
                self.w("evo::one_by_one();")
            self.statements(one, ctx, late, number, inner)
            self.step_done()
        self.sums_done()

    def _unrolled(
        self, one: Pass, ctx: Context, late: Sequence[Node], number: int, inner: Sequence[Loop], unrolled: list[str]
    ) -> None:
        """One step of several vectors. Several streamed outputs wait for its end, so that each writes whole lines of
        memory: processors keep few of them open, and one that is closed half full costs a transfer of its own."""
        streamed = [t for t, how in one.stores if how == "memory" and self.streams(t)]
        together = streamed if len(streamed) > 1 and self.nest.interleaved == 1 else []
        self.waiting = {tensor: self.names.fresh(f"{short_name(tensor)}_line") for tensor in together}
        if self.waiting:
            self.w(f"evo::vec {', '.join(f'{name}[UNROLL]' for name in self.waiting.values())};")
        with self.loops(unrolled):
            self.position_in_step(inner[-1])
            self.statements(one, ctx, late, number, inner)
        for tensor in list(self.waiting):
            access, name = self.written(tensor), self.waiting.pop(tensor)
            with self.loops(unrolled):
                self.position_in_step(inner[-1])
                self.put(tensor, f"{self.pointer(tensor)} + {ctx.offset(access)}", f"{name}[u]", access, ctx)

    def statements(self, one: Pass, ctx: Context, late: Sequence[Node], number: int, inner: Sequence[Loop]) -> None:
        for line in prefetches(self, one, ctx, number, inner):
            self.w(line)
        self.compute(one, ctx, late)

    def compute(self, one: Pass, ctx: Context, late: Sequence[Node]) -> None:
        """What a pass computes at one place, and what it stores there."""
        outside = dict(self.known)
        shared = dict(ctx.shared)
        self._share(one, ctx, late)
        for node in (*late, *one.maps):
            self.let(node, ctx)
            for out in node.outputs:
                for tensor, how in one.stores:
                    if tensor == out:
                        self._store(tensor, how, ctx)
        for node in one.reduces:
            self._push(node, ctx)
        self.known.clear()
        self.known.update(outside)
        ctx.shared = shared

    def _share(self, one: Pass, ctx: Context, late: Sequence[Node]) -> None:
        """Loads that several stages of a pass want become variables."""
        counts: dict[tuple[str, str], list[Any]] = {}
        for node in (*late, *one.nodes):
            ctx.node = node
            for load in loads(node.body):
                access = node.accesses.get(load)
                if access is None or access.terms is None or load.guards:
                    continue
                if one.reads.get(load.tensor, "memory") == "local":
                    continue
                key = (load.tensor, ctx.offset(access))
                counts.setdefault(key, [0, node, load])[0] += 1
        for key, (count, node, load) in counts.items():
            if count > 1 and key not in ctx.shared:
                ctx.node = node
                value = print_expr(load, ctx)
                producer = self.domain.producer(key[0])
                name = self.names.fresh(short_name(key[0]) if producer is None else f"{self.names.of(producer)}_again")
                self.w(f"const {ctype_of(value)} {name} = {value.text};")
                ctx.shared[key] = Value(name, value.vector, value.dtype)

    def _store(self, tensor: str, how: str, ctx: Context) -> None:
        value, t = self.known[tensor], self.domain.tensors[tensor]
        if how == "row":
            pointer, access, dtype = self.row_buffers[tensor], self.in_row(tensor), computed(t.dtype)
        else:
            dtype = t.dtype if t.kind == "out" else computed(t.dtype)
            pointer, access = self.pointer(tensor), self.written(tensor)
        where = ctx.offset(replace(access, tensor="@row") if how == "row" else access)
        place = pointer if where == "0" else f"{pointer} + {where}"
        if self.nest.interleaved > 1:
            self._store_beside(tensor, place, where, value, ctx)
            return
        if ctx.vector and (how == "row" or ctx.lane in access.axes):
            text = in_lanes(value)
            if how == "memory":
                self.put(tensor, place, text, access, ctx)
            else:
                self.w(f"evo::store({place}, {text}, n);")
        else:
            text = value.text if value.dtype == dtype else f"{CTYPES[dtype]}({value.text})"
            self.w(f"{pointer}[{where}] = {text};")

    def _store_beside(self, tensor: str, place: str, where: str, value: Value, ctx: Context) -> None:
        """A result that lies between others: in vectors it waits for them."""
        dtype, found = self.domain.tensors[tensor].dtype, self.beside.setdefault(tensor, [])
        found.append(in_lanes(value) if ctx.vector else value.text)
        if not ctx.vector:
            plain = value.dtype == dtype
            text = value.text if plain else f"{CTYPES[dtype]}({value.text})"
            self.w(f"{self.pointer(tensor)}[{where} + {len(found) - 1}] = {text};")
        if len(found) < self.nest.interleaved:
            return
        if ctx.vector and self.streams(tensor) and computed(dtype) == "f32":
            aligned = self._aligned(self.written(tensor), ctx)
            self.w(f"evo::stream_beside({place}, n, {aligned}, {', '.join(found)});")
        elif ctx.vector:
            self.w(f"evo::store_beside({place}, n, {', '.join(found)});")
        found.clear()

    def streams(self, tensor: str) -> bool:
        t = self.domain.tensors[tensor]
        return bool(self.schedule.stream.get(tensor)) and t.kind == "out" and t.dtype != "bool"

    def put(self, tensor: str, place: str, text: str, access: Access, ctx: Context) -> None:
        """Stores a vector of `tensor`, past the caches where the schedule says so."""
        if tensor in self.waiting:
            self.w(f"{self.waiting[tensor]}[u] = {text};")
        elif self.streams(tensor):
            self.w(f"evo::stream({place}, {text}, n, {self._aligned(access, ctx)});")
        else:
            self.w(f"evo::store({place}, {text}, n);")

    def _aligned(self, access: Access, ctx: Context) -> str:
        """Whether every row of an output starts on a vector's boundary (its base does)."""
        factors = []
        for loop in self._all_loops:
            if ctx.lane in loop.group:
                continue
            size = dict(access.terms or ()).get(loop.group[-1])
            if size is not None:
                factors.append(self.names.text(size) or "1")
        unique = list(dict.fromkeys(factors))
        if not unique:
            return "true"
        return self.kernel.flag("aligned", " && ".join(f"{in_brackets(f)} % evo::lanes == 0" for f in unique))

    @property
    def _all_loops(self) -> list[Loop]:
        return [*self.rows, *[loop for one in self.nest.passes for loop in self.inner_loops(one)]]

    def _push(self, node: Node, ctx: Context) -> None:
        ctx.node = node
        value = print_expr(node.body, ctx)
        text = value.text
        if ctx.vector and value.dtype == "bool":
            text = f"{in_brackets(text)} & 1" if value.vector else f"evo::broadcast(int32_t({text}))"
        elif ctx.vector:
            text = in_lanes(value)
        elif not ctx.vector and value.dtype == "bool":
            text = f"int64_t({text})"
        arguments = [text]
        if node.monoid in ("argmax", "argmin"):
            position = ctx.offset(replace(self.position(node), tensor=""))
            if ctx.vector:
                inside = self.position(node).step(ctx.lane)
                position = (
                    f"evo::iota() + (int32_t)({position})" if inside else f"evo::broadcast((int32_t)({position}))"
                )
            arguments.append(position)
        if ctx.vector and not self.nest.columns:
            arguments.append("n")
        self.w(f"{self.accumulated[node.name]}.push({', '.join(arguments)});")

    def row_pass(self, one: Pass, number: int) -> None:
        inner = self.inner_loops(one)
        vector = self.is_vector([one])
        lane = inner[-1] if inner else None
        late, hoisted = self.enter(one, lane)
        ctx = self.context([*self.rows, *inner], vector, one, lane)
        ctx.shared.update(hoisted)
        self.reciprocals_of(one, ctx)
        accumulators = self.declare(one, vector)
        self.sweep(one, ctx, inner, late, number)
        for node in one.reduces:
            self.result(node, f"evo::across({accumulators[node.name]})", vector)
        self.after(one)

    def enter(self, one: Pass, lane: Loop | None) -> tuple[list[Node], dict[tuple[str, str], Value]]:
        """Computes and reads what a pass needs once per row; maps that wait for the lanes, and loads with names."""
        late = [node for node in one.heads if lane and set(lane.group) & set(node.axes)]
        outer = self.context(self.rows, False, one)
        for node in one.heads:
            if node not in late:
                self.let(node, outer)
        return late, self.hoist(one, outer)

    def after(self, one: Pass) -> None:
        """What happens once per row when a pass is done."""
        ctx = self.context(self.rows, False, one)
        for node in one.row_maps:
            self.let(node, ctx)
        for tensor in one.row_stores:
            self.store_row(tensor, ctx)


def tile_levels(extent: int, lanes: int, vector: bool, unroll: bool) -> int:
    """How many tile loops an axis has room for, with more than one trip each."""
    step = lanes * (2 if unroll else 1) if vector else 1
    smallest = max(2 * step, 2 * lanes if vector else 4)
    count = 0
    while smallest < extent:
        count, smallest = count + 1, smallest * 2
    return min(count, 3)


def powers(low: int, high: int) -> tuple[int, ...]:
    found = []
    value = low
    while value <= high:
        found.append(value)
        value *= 2
    return tuple(found) or (low,)
