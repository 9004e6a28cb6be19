"""One loop nest as C++: loops over rows, sweeps over the inner axes, what happens in between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from evoforge.lowering.cpp_expr import CTYPES, Context, Value, can_vectorise, computed, print_expr
from evoforge.lowering.cpp_names import Group, collapse, order_axes
from evoforge.lowering.domain import Access, Node, Size
from evoforge.lowering.index import names as axes_of
from evoforge.lowering.ir import FloorDiv, Guard, Indirect, Load, Mod, Op, Position, loads, rewrite
from evoforge.lowering.regions import Nest, Pass
from evoforge.lowering.simplify import dtype_of

if TYPE_CHECKING:
    from evoforge.lowering.cpp import Kernel

__all__ = ["Loop", "NestPrinter", "Sweep"]

_ACCUMULATORS = {
    "sum": "total", "prod": "product", "max": "maximum", "min": "minimum", "argmax": "argmax", "argmin": "argmin",
    "welford": "welford", "maxsum": "maxsum",
}  # fmt: skip
_FIELDS = {"argmax": ("value", "at"), "argmin": ("value", "at"), "welford": ("mean", "m2"), "maxsum": ("m", "sum()")}
_OUTER = (("row", "rows"), ("batch", "batches"), ("group", "groups"), ("part", "parts"), ("slab", "slabs"))
_INNER = (("line", "lines"), ("plane", "planes"), ("volume", "volumes"))
_TILE_NAMES = {1: ("tile",), 2: ("panel", "tile"), 3: ("block", "panel", "tile")}
_TILE_PARAMETERS = {1: ("TILE",), 2: ("TILE2", "TILE"), 3: ("TILE3", "TILE2", "TILE")}


@dataclass
class Sweep:
    """What was printed for one pass: the raw material of the implied cell.

    `chains` are loops over one axis from the outside in, as (what it walks, what it walks it by): a
    number, a parameter's name, or "step" for a vector's or an unrolled block's worth of elements.
    """

    one: Pass
    vector: bool
    chains: list[list[tuple[int | str, int | str]]]
    unrolled: bool
    prefetched: bool = False
    streamed: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Loop:
    """A loop over a group of axes: variable, name of its size, sizes per workload."""

    group: Group
    var: str
    size: str
    extent: int


class NestPrinter:
    """Prints one nest into a kernel."""

    def __init__(self, kernel: Kernel, nest: Nest, lanes: int) -> None:
        self.kernel, self.nest, self.lanes = kernel, nest, lanes
        self.domain, self.schedule, self.names = kernel.domain, kernel.schedule, kernel.names
        self.known: dict[str, Value] = {}
        self.reciprocals: dict[str, str] = {}
        self.depth = 1
        self.heads: list[Node] = []
        self.accumulated: dict[str, str] = {}
        self.row_buffers: dict[str, str] = {}
        self.hoisted: dict[tuple[str, str], Value] = {}
        self.row_chain: list[tuple[int | str, int | str]] = []
        self.chunk_chain: list[tuple[int | str, int | str]] = []
        self.lane_chain: list[tuple[int | str, int | str]] = []
        nodes = [n for one in nest.passes for n in (*one.heads, *one.nodes, *one.row_maps)]
        self.apart = set().union(*(_atoms(node) for node in nodes)) if nodes else set()
        self.axes = {a for one in nest.passes for n in one.nodes for a in (*n.axes, *n.reduction)} | set(nest.rows)
        self.rows = self._rows()
        self.vector = self._vector(nest.passes) if nest.columns and nest.reduces else False

    # loops

    def _rows(self) -> list[Loop]:
        """The outer loops: the rows, or in a nest without reductions all axes but the lane's."""
        nest, accesses = self.nest, [a for one in self.nest.passes for a in self._accesses(one)]
        lane: Group = (nest.lane,) if nest.lane else ()
        if nest.reduces:
            axes = [a for a in nest.rows if not (nest.columns and a == nest.lane)]
            groups = collapse(self.domain, order_axes(self.domain, axes, accesses), accesses, self.apart)
            if nest.columns:
                both = collapse(self.domain, order_axes(self.domain, nest.rows, accesses), accesses, self.apart)
                if both and nest.lane in both[-1]:
                    groups, lane = both[:-1], both[-1]
        else:
            groups = collapse(self.domain, order_axes(self.domain, self.axes, accesses), accesses, self.apart)
            if groups and nest.lane in groups[-1]:
                groups, lane = groups[:-1], groups[-1]
            else:
                groups = [g for g in groups if nest.lane not in g]
        self.lane_group = lane
        loops = []
        for group, (var, size) in zip(reversed(groups), _OUTER, strict=False):
            loops.append(Loop(group, var, self.names.size(group, size), self._extent(group)))
        return loops[::-1]

    def _extent(self, group: Sequence[str]) -> int:
        return min(self.domain.numel(group).values)

    def _inner(self, one: Pass) -> list[Loop]:
        """The loops of a sweep, the lane's last."""
        nest, accesses = self.nest, self._accesses(one)
        outer = {a for loop in self.rows for a in loop.group}
        mine = {a for n in one.nodes for a in (*n.axes, *n.reduction)} - outer
        if nest.columns and nest.reduces:
            mine -= set(self.lane_group)
            groups = collapse(self.domain, order_axes(self.domain, mine, accesses), accesses, self.apart)
            return [
                Loop(g, v if k else "step", self.names.size(g, s if k else "steps"), self._extent(g))
                for k, (g, (v, s)) in reversed(
                    list(enumerate(zip(reversed(groups), (("step", "steps"), *_INNER), strict=False)))
                )
            ]
        if not nest.reduces:
            return [self._lane_loop(self.lane_group)] if self.lane_group else []
        groups = collapse(self.domain, order_axes(self.domain, mine, accesses), accesses, self.apart)
        fast = next((g for g in groups if self._unit(one, g)), groups[-1] if groups else ())
        groups = [g for g in groups if g != fast]
        loops = [
            Loop(g, v, self.names.size(g, s), self._extent(g))
            for g, (v, s) in zip(reversed(groups), _INNER, strict=False)
        ][::-1]
        return [*loops, self._lane_loop(fast)] if fast else loops

    def _unit(self, one: Pass, group: Group) -> bool:
        return any(access.step(group[-1]) == 1 for access in self._accesses(one))

    def _lane_loop(self, group: Group) -> Loop:
        return Loop(group, "col", self.names.size(group, "cols"), self._extent(group))

    def _accesses(self, one: Pass) -> list[Access]:
        """Every access to memory of a pass, row buffers as the positions in a row."""
        found: list[Access] = []
        for node in (*one.heads, *one.nodes, *one.row_maps):
            for access in node.reads():
                how = one.reads.get(access.tensor, "memory")
                if how == "memory":
                    found.append(access)
                elif how == "row":
                    found.append(self._in_row(access.tensor))
            if node.monoid in ("argmax", "argmin"):
                found.append(self._position(node))
        for tensor, how in one.stores:
            producer = self.domain.producer(tensor)
            assert producer is not None
            found.append(producer.write if how == "memory" else self._in_row(tensor))
        for tensor in one.row_stores:
            producer = self.domain.producer(tensor)
            assert producer is not None
            found.append(producer.write)
        return found

    def _in_row(self, tensor: str) -> Access:
        producer = self.domain.producer(tensor)
        assert producer is not None
        outer = set(self.nest.rows)
        step = Size((), (1,) * self.domain.workloads)
        terms = []
        for name in reversed([a for a in producer.axes if a not in outer]):
            terms.append((name, step))
            step = step * self.domain.extents[name]
        return Access(tensor, tuple(reversed(terms)), 0)

    def _position(self, node: Node) -> Access:
        step = Size((), (1,) * self.domain.workloads)
        terms = []
        for name in reversed(node.reduction):
            terms.append((name, step))
            step = step * self.domain.extents[name]
        return Access("", tuple(reversed(terms)), 0)

    # vectors

    def _vector(self, passes: Sequence[Pass]) -> bool:
        if not self.schedule.vector or not self.nest.lane:
            return False
        tensors = self.domain.tensors
        for one in passes:
            lane = self._lane_of(one)
            for node in (
                *one.nodes,
                *(one.heads if self.nest.columns else ()),
                *(one.row_maps if self.nest.columns else ()),
            ):
                if not can_vectorise(node.body, lane, node, tensors):
                    return False
                if node.kind == "reduce" and not self._vector_reduce(node, lane):
                    return False
                if node.kind == "map" and lane in node.axes:
                    if any(tensors[o].dtype not in ("f32", "f16", "bf16", "bool") for o in node.outputs if o):
                        return False
                    stored = any(o in [t for t, _ in one.stores] for o in node.outputs)
                    if stored and node.write.step(lane) != 1:
                        return False
            for tensor, how in one.stores:
                if how == "row" and not self.nest.columns and self._in_row(tensor).step(lane) != 1:
                    return False
            if self.nest.columns and any(
                tensors[t].dtype not in ("f32", "f16", "bf16") or self._write(t).step(lane) != 1 for t in one.row_stores
            ):
                return False
        return True

    def _write(self, tensor: str) -> Access:
        producer = self.domain.producer(tensor)
        assert producer is not None
        return producer.write

    def _lane_of(self, one: Pass) -> str:
        if self.nest.columns or not self.nest.reduces:
            return self.lane_group[-1] if self.lane_group else ""
        loops = self._inner(one)
        return loops[-1].group[-1] if loops else ""

    def _vector_reduce(self, node: Node, lane: str) -> bool:
        if computed(dtype_of(node.body, self.domain.tensors)) != "f32":
            return False
        if node.monoid in ("argmax", "argmin"):
            return self.nest.columns or self._position(node).step(lane) == 1
        return True

    # printing

    def w(self, text: str) -> None:
        self.kernel.body.append("    " * self.depth + text if text else "")

    @contextmanager
    def braces(self, head: str, tail: str = "}") -> Iterator[None]:
        self.w(f"{head} {{")
        self.depth += 1
        yield
        self.depth -= 1
        self.w(tail)

    @contextmanager
    def loops(self, heads: Sequence[str]) -> Iterator[None]:
        """Nested loops; the last opens a brace."""
        for head in heads[:-1]:
            self.w(head)
            self.depth += 1
        if heads:
            with self.braces(heads[-1]):
                yield
        else:
            yield
        self.depth -= len(heads[:-1])

    def unrolled(self) -> AbstractContextManager[None]:
        """The loop over the vectors of one step; it is unrolled into registers."""
        self.w("#pragma GCC unroll 8")
        return self.braces("for (int64_t u = 0; u < UNROLL; ++u)")

    def pragma(self, nested: int) -> None:
        collapsed = f" collapse({nested})" if nested > 1 else ""
        self.w(f"#pragma omp parallel for{collapsed} num_threads(call->threads) schedule({self.schedule.omp})")

    def run(self) -> None:
        self._comment()
        if self.nest.columns and self.nest.reduces:
            from evoforge.lowering.cpp_columns import print_columns

            print_columns(self)
        elif self.nest.chunked:
            from evoforge.lowering.cpp_chunks import print_chunks

            print_chunks(self)
        else:
            self._print_rows()

    def _comment(self) -> None:
        """What the nest does, pass by pass."""
        passes = []
        for one in self.nest.passes:
            words = [self.names.of(node) for node in one.reduces]
            words += [
                tensor for tensor, how in one.stores if how == "memory" and self.domain.tensors[tensor].kind == "out"
            ]
            words += [self.names.of(n) for n in one.maps if any((o, "row") in one.stores for o in n.outputs)]
            words += [self.names.of(n) for n in one.maps if any(o in self.kernel.plan.memory for o in n.outputs)]
            passes.append(", ".join(dict.fromkeys(words)) or "nothing")
        if self.nest.columns and self.nest.reduces:
            kind = "Columns, a vector at a time"
        elif self.nest.chunked:
            kind = "Rows in chunks"
        else:
            kind = "Rows" if self.rows else "Elements"
        self.w(f"// {kind}: {'; then '.join(passes)}.")

    def _print_rows(self) -> None:
        blocked = self.schedule.row_block and bool(self.rows)
        heads = [f"for (int64_t {loop.var} = 0; {loop.var} < {loop.size}; ++{loop.var})" for loop in self.rows]
        if self.rows:
            nested = len(heads)
            if blocked:
                last = self.rows[-1]
                choices = _powers(2, min(64, max(2, last.extent // 2)))
                self.kernel.parameter("ROW_BLOCK", choices, choices[min(len(choices) - 1, 2)])
                outer = f"{last.var}_block"
                self.row_chain = [(last.extent, "ROW_BLOCK"), ("ROW_BLOCK", 1)]
                heads[-1:] = [
                    f"for (int64_t {outer} = 0; {outer} < {last.size}; {outer} += ROW_BLOCK)",
                    f"for (int64_t {last.var} = {outer}; {last.var} < evo::min({outer} + ROW_BLOCK, {last.size}); ++{last.var})",
                ]
            self.pragma(nested)
        with self.loops(heads):
            self._buffers()
            for number, one in enumerate(self.nest.passes):
                if number:
                    self.w("")
                self._row_pass(one, number)

    def _buffers(self) -> None:
        for tensor in dict.fromkeys(t for one in self.nest.passes for t, how in one.stores if how == "row"):
            producer = self.domain.producer(tensor)
            assert producer is not None
            inner = [a for a in producer.axes if a not in self.nest.rows]
            name = self.names.fresh(f"{self.names.of(producer)}_row")
            count = self.names.text(self.domain.numel(inner)) or "1"
            full = " * ".join(self.domain.shapes[a].factors[0] for a in inner) or "1"
            self.kernel.piece(
                name, "float", f"call->threads * ({full})", f"one row of {producer.origin or producer.name} per thread"
            )
            self.w(f"float* {name} = p.{name} + evo::omp_get_thread_num() * {_product(count)};")
            self.row_buffers[tensor] = name

    def _row_pass(self, one: Pass, number: int) -> None:
        inner = self._inner(one)
        vector = self._vector([one])
        lane = inner[-1] if inner else None
        late = [n for n in one.heads if lane and set(lane.group) & set(n.axes)]
        outer = self.context(self.rows, False, one)
        for node in one.heads:
            if node not in late:
                self.let(node, outer)
        hoisted = self._hoist(one, outer)
        self._reciprocals(one)
        accumulators = self._declare(one, vector)
        ctx = self.context([*self.rows, *inner], vector, one, lane)
        ctx.shared.update(hoisted)
        self.sweep(one, ctx, inner, late, number)
        for node in one.reduces:
            self._result(node, accumulators[node.name])
        self.after(one)

    def after(self, one: Pass) -> None:
        """What happens once per row when a pass is done."""
        ctx = self.context(self.rows, False, one)
        for node in one.row_maps:
            self.let(node, ctx)
        for tensor in one.row_stores:
            self.store_row(tensor, ctx)

    def store_row(self, tensor: str, ctx: Context) -> None:
        dtype = self.domain.tensors[tensor].dtype
        value = self.known[tensor]
        where = ctx.offset(self._write(tensor))
        ctype = CTYPES[dtype]
        plain = value.dtype == dtype or (self.domain.tensors[tensor].kind == "tmp" and value.dtype == computed(dtype))
        self.w(f"{self.pointer(tensor)}[{where}] = {value.text if plain else f'{ctype}({value.text})'};")

    def pointer(self, tensor: str) -> str:
        name = self.kernel.pointers[tensor]
        return f"p.{name}" if self.domain.tensors[tensor].kind == "tmp" else name

    def context(self, loops: Sequence[Loop], vector: bool, one: Pass, lane: Loop | None = None) -> Context:
        pointers = {name: self.pointer(name) for name in self.domain.tensors}
        vars_of = {loop.group: loop.var for loop in loops}
        unrolled = vector and self.schedule.unroll
        if lane is not None:
            vars_of[lane.group] = "at" if unrolled else lane.var
        stored_as = {t: "float" for t in self.domain.tensors if self.domain.tensors[t].kind == "tmp"}
        for tensor, how in one.reads.items():
            if how == "row":
                pointers[tensor] = self.row_buffers.get(tensor, tensor)

        def offset(access: Access) -> str:
            if one.reads.get(access.tensor) == "row":
                access = self._in_row(access.tensor)
            return self.offset(access, vars_of)

        def axis(name: str) -> str:
            return next(var for group, var in vars_of.items() if group == (name,))

        lane_name = lane.group[-1] if lane is not None else ""
        return Context(
            vector, lane_name, vars_of[lane.group] if lane else "", self.domain.tensors, pointers, offset, axis,
            known=self.known, reciprocals=self.reciprocals, stored_as=stored_as,
        )  # fmt: skip

    def offset(self, access: Access, vars_of: dict[Group, str]) -> str:
        parts = []
        table = dict(access.terms or ())
        for group, var in vars_of.items():
            size = table.get(group[-1])
            if size is not None:
                factor = self.names.text(size)
                parts.append(f"{var} * {factor}" if factor else var)
        if access.const or not parts:
            parts.append(str(access.const))
        return " + ".join(parts).replace("+ -", "- ")

    def let(self, node: Node, ctx: Context) -> None:
        """A stage's value as a local variable."""
        ctx.node = node
        value = print_expr(node.body, ctx)
        name = self.names.of(node)
        self.w(f"const {_ctype(value)} {name} = {value.text};")
        for out in node.outputs:
            if out:
                self.known[out] = Value(name, value.vector, value.dtype)

    def _hoist(self, one: Pass, ctx: Context) -> dict[tuple[str, str], Value]:
        """Loads that no inner axis moves become variables before the sweep."""
        outer = {a for loop in self.rows for a in loop.group}
        found = self.hoisted
        for node in one.nodes:
            ctx.node = node
            for load in loads(node.body):
                access = node.accesses.get(load)
                if access is None or access.terms is None or load.guards or not access.axes <= outer or not outer:
                    continue
                if one.reads.get(access.tensor, "memory") != "memory" or node.kind == "":
                    continue
                key = (access.tensor, ctx.offset(access))
                if key not in found:
                    producer = self.domain.producer(access.tensor)
                    value = print_expr(load, ctx)
                    single = producer is not None and len(producer.outputs) == 1
                    name = self.names.of(producer) if producer and single else self.names.fresh(_short(access.tensor))
                    self.w(f"const {_ctype(value)} {name} = {value.text};")
                    found[key] = Value(name, False, value.dtype)
        return found

    def _reciprocals(self, one: Pass) -> None:
        if not self.schedule.reciprocal:
            return
        lane = self._lane_of(one)

        def visit(node: Any) -> Any:
            if (
                isinstance(node, Op)
                and node.name == "div"
                and isinstance(node.args[1], Load)
                and lane in axes_of(node.args[0])
            ):
                tensor = node.args[1].tensor
                value = self.known.get(tensor)
                if value is not None and not value.vector and value.dtype == "f32" and tensor not in self.reciprocals:
                    name = self.names.fresh(f"per_{value.text.rpartition('.')[0] or value.text}")
                    self.w(f"const float {name} = 1.f / {value.text};")
                    self.reciprocals[tensor] = name
            return node

        for node in one.nodes:
            rewrite(node.body, visit)

    def accumulator(self, node: Node, vector: bool) -> str:
        """The C++ type that reduces a stage."""
        dtype = computed(dtype_of(node.body, self.domain.tensors))
        element = "evo::vec" if vector else "int64_t" if dtype == "bool" else CTYPES[dtype]
        return f"evo::{_ACCUMULATORS[node.monoid or '']}<{element}>"

    def _declare(self, one: Pass, vector: bool) -> dict[str, str]:
        made = {}
        for node in one.reduces:
            many = vector and self.schedule.unroll
            name = self.names.fresh(f"{self.names.of(node)}_acc")
            if many:
                self.unroll_parameter()
            self.w(f"{self.accumulator(node, vector)} {name}{'[UNROLL]' if many else ''};")
            made[node.name] = name
            self.accumulated[node.name] = f"{name}[u]" if many else name
        return made

    def unroll_parameter(self) -> None:
        self.kernel.parameter("UNROLL", (2, 4, 8), 4)

    def _result(self, node: Node, accumulator: str, joined: str = "") -> None:
        fields = _FIELDS.get(node.monoid or "", ("value",))
        name = self.names.of(node)
        dtype = computed(dtype_of(node.body, self.domain.tensors))
        joined = joined or f"evo::across({accumulator})"
        if len(fields) == 1:
            self.w(f"const auto {name} = {joined}.value;")
            texts = [name]
        else:
            self.w(f"const auto {name} = {joined};")
            texts = [f"{name}.{one}" for one in fields]
        self.known_results(node, texts, dtype, False)

    def known_results(self, node: Node, texts: Sequence[str], dtype: str, vector: bool) -> None:
        for position, (out, text) in enumerate(zip(node.outputs, texts, strict=True)):
            if out:
                at = node.monoid in ("argmax", "argmin") and position == 1
                self.known[out] = Value(text, vector, "i64" if at else dtype)

    # sweeps

    def lane_heads(self, lane: Loop, vector: bool, start: str = "0", top: str = "") -> list[str]:
        """Tile loops and the loop over the lane axis; `start` and `top` bound them where they are in a chunk."""
        step = "UNROLL * evo::lanes" if vector and self.schedule.unroll else "evo::lanes" if vector else "1"
        heads, end = [], top or lane.size
        inside = bool(self.chunk_chain) and start != "0"
        walked: int | str = self.chunk_chain[-1][1] if inside else lane.extent
        self.lane_chain = list(self.chunk_chain) if inside else []
        room = min(lane.extent, max(self.kernel.parameters["CHUNK"].choices)) if inside else lane.extent
        levels = min(self.schedule.tile, tile_levels(room, self.lanes, vector, self.schedule.unroll))
        if vector and self.schedule.unroll:
            self.unroll_parameter()
        for level, (name, parameter) in enumerate(
            zip(_TILE_NAMES.get(levels, ()), _TILE_PARAMETERS.get(levels, ()), strict=True)
        ):
            self._tile_parameter(parameter, levels - level, levels, room, vector)
            heads.append(f"for (int64_t {name} = {start}; {name} < {end}; {name} += {parameter})")
            if inside and not level:
                self.kernel.require(f"CHUNK > {parameter}")
            start, end = name, f"evo::min({name} + {parameter}, {lane.size})"
            self.lane_chain.append((walked, parameter))
            walked = parameter
        self.lane_chain.append((walked, "step" if vector else 1))
        advance = f"++{lane.var}" if step == "1" else f"{lane.var} += {step}"
        heads.append(f"for (int64_t {lane.var} = {start}; {lane.var} < {end}; {advance})")
        return heads

    def _tile_parameter(self, name: str, level: int, levels: int, extent: int, vector: bool) -> None:
        smallest = 2 * self.lanes if vector else 4
        choices = tuple(c for c in _powers(smallest, 1 << 20) if c < extent)
        spread = [choices[round((k + 1) * len(choices) / (levels + 1) - 0.5)] for k in range(levels)]
        self.kernel.parameter(name, choices, spread[level - 1])
        if name == "TILE" and vector and self.schedule.unroll:
            self.kernel.require(f"TILE >= {2 * self.lanes} * UNROLL")
        if name != "TILE":
            self.kernel.require(f"{name} > {'TILE' if name == 'TILE2' else 'TILE2'}")

    def whole(self, lane: Loop) -> str:
        step = "(UNROLL * evo::lanes)" if self.schedule.unroll else "evo::lanes"
        return self.kernel.flag("whole", f"{lane.size} % {step} == 0")

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
            first, end = (start, top) if position == 0 and start else ("0", loop.size)
            heads.append(f"for (int64_t {loop.var} = {first}; {loop.var} < {end}; ++{loop.var})")
        self.lane_chain = []
        if lane is not None:
            bounds = (start, top) if start and len(inner) == 1 else ("0", "")
            heads += self.lane_heads(lane, ctx.vector, *bounds)
        if not self.rows and heads and not start:
            self.pragma(1)
        with self.loops(heads):
            if lane is not None and ctx.vector and self.schedule.unroll:
                with self.unrolled():
                    self.w(
                        f"const int64_t at = {lane.var} + u * evo::lanes, n = evo::part({lane.size} - at, {self.whole(lane)});"
                    )
                    self.statements(one, ctx, late, number, inner)
            else:
                if lane is not None and ctx.vector:
                    self.w(f"const int64_t n = evo::part({lane.size} - {lane.var}, {self.whole(lane)});")
                elif lane is not None:
                    self.w("evo::one_by_one();")
                self.statements(one, ctx, late, number, inner)

    def statements(self, one: Pass, ctx: Context, late: Sequence[Node], number: int, inner: Sequence[Loop]) -> None:
        from evoforge.lowering.cpp_prefetch import prefetches

        sweep = Sweep(one, ctx.vector, [self.row_chain, self.lane_chain], ctx.vector and self.schedule.unroll)
        self.kernel.sweeps.append(sweep)
        for line in prefetches(self, one, ctx, number, inner):
            sweep.prefetched = True
            self.w(line)
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
                name = self.names.fresh(_short(key[0]) if producer is None else f"{self.names.of(producer)}_again")
                self.w(f"const {_ctype(value)} {name} = {value.text};")
                ctx.shared[key] = Value(name, value.vector, value.dtype)

    def _store(self, tensor: str, how: str, ctx: Context) -> None:
        value, t = self.known[tensor], self.domain.tensors[tensor]
        if how == "row":
            pointer, access, dtype = self.row_buffers[tensor], self._in_row(tensor), "f32"
        else:
            pointer, access, dtype = (
                self.pointer(tensor),
                self._write(tensor),
                t.dtype if t.kind == "out" else computed(t.dtype),
            )
        where = self.row_offset(ctx, access) if how == "row" else ctx.offset(replace(access, tensor=""))
        place = pointer if where == "0" else f"{pointer} + {where}"
        if ctx.vector and ctx.lane in access.axes:
            text = value.text if value.vector else f"evo::broadcast({value.text})"
            if how == "memory" and self.schedule.stream.get(tensor) and t.kind == "out" and t.dtype != "bool":
                self.kernel.sweeps[-1].streamed.append(tensor)
                self.w(f"evo::stream({place}, {text}, n, {self._aligned(access, ctx)});")
            else:
                self.w(f"evo::store({place}, {text}, n);")
        else:
            text = value.text if value.dtype == dtype else f"{CTYPES[dtype]}({value.text})"
            self.w(f"{pointer}[{where}] = {text};")

    def row_offset(self, ctx: Context, access: Access) -> str:
        return ctx.offset(replace(access, tensor=""))

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
        return self.kernel.flag("aligned", " && ".join(f"{_product(f)} % evo::lanes == 0" for f in unique))

    @property
    def _all_loops(self) -> list[Loop]:
        return [*self.rows, *[loop for one in self.nest.passes for loop in self._inner(one)]]

    def _push(self, node: Node, ctx: Context) -> None:
        ctx.node = node
        value = print_expr(node.body, ctx)
        text = value.text
        if ctx.vector and not value.vector:
            text = f"evo::broadcast({text})"
        elif not ctx.vector and value.dtype == "bool":
            text = f"int64_t({text})"
        arguments = [text]
        if node.monoid in ("argmax", "argmin"):
            position = ctx.offset(replace(self._position(node), tensor=""))
            if ctx.vector:
                inside = self._position(node).step(ctx.lane)
                position = (
                    f"evo::iota() + (int32_t)({position})" if inside else f"evo::broadcast((int32_t)({position}))"
                )
            arguments.append(position)
        if ctx.vector and not self.nest.columns:
            arguments.append("n")
        self.w(f"{self.accumulated[node.name]}.push({', '.join(arguments)});")


def tile_levels(extent: int, lanes: int, vector: bool, unroll: bool) -> int:
    """How many tile loops an axis has room for, with more than one trip each."""
    step = lanes * (2 if unroll else 1) if vector else 1
    smallest = max(2 * step, 2 * lanes if vector else 4)
    count = 0
    while smallest < extent:
        count, smallest = count + 1, smallest * 2
    return min(count, 3)


def _powers(low: int, high: int) -> tuple[int, ...]:
    found = []
    value = low
    while value <= high:
        found.append(value)
        value *= 2
    return tuple(found) or (low,)


def _product(text: str) -> str:
    return f"({text})" if " " in text else text


def _ctype(value: Value) -> str:
    if value.vector:
        return "evo::ivec" if value.dtype == "bool" else "evo::vec"
    return CTYPES[value.dtype]


def _short(tensor: str) -> str:
    return {"in": "x", "cst": "w", "out": "y"}.get(tensor.rstrip("0123456789"), "t") + tensor.lstrip(
        "abcdefghijklmnopqrstuvwxyz"
    )


def _atoms(node: Node) -> set[str]:
    """Axes that appear outside linear addresses: they keep loops of their own."""
    found: set[str] = set()

    def visit(part: Any) -> Any:
        if isinstance(part, Position | Guard | Indirect | FloorDiv | Mod):
            found.update(axes_of(part))
        return part

    rewrite(node.body, visit)
    for load, access in node.accesses.items():
        if access.terms is None:
            found.update(axes_of(load.index))
    return found
