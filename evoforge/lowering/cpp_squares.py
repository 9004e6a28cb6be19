"""Nests that turn a matrix: what lies along another axis than the lanes is read along it, in squares that are turned in
registers, instead of one element per line of memory.

A block of as many rows as there are lanes is turned at a time: where rows have reductions, all of it, into a buffer
that the passes then read; in a nest of maps one step of the lanes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from evoforge.lowering.cpp_body import short_name
from evoforge.lowering.cpp_expr import Value, print_expr
from evoforge.lowering.domain import Access, Node, Size
from evoforge.lowering.ir import Load, loads
from evoforge.lowering.lanes import NEAR, computed

if TYPE_CHECKING:
    from evoforge.lowering.cpp_layout import Loop
    from evoforge.lowering.cpp_sweep import SweepPrinter

__all__ = ["Turned", "enter_row", "print_squares", "turn_rows", "turned_reads"]

_TASKS = 8  # for every thread; where there are fewer, blocks of rows are tasks of their own
_WIDEST = 8192  # elements of a row that is kept; more would not stay in the caches


@dataclass(frozen=True)
class Turned:
    """Reads that run along the loop `fast` while vectors lie along `lane`: one per place, and the stage of one that
    reads there."""

    fast: Loop
    lane: Loop
    reads: tuple[tuple[Node, Load], ...]

    @property
    def start(self) -> str:
        """Where a block of rows begins."""
        return f"{self.fast.var}_block"

    @property
    def blocks(self) -> str:
        return f"for (int64_t {self.start} = 0; {self.start} < {self.fast.size}; {self.start} += evo::lanes)"

    @property
    def rows(self) -> str:
        """The loop over the rows of a block."""
        end = f"evo::min({self.start} + evo::lanes, {self.fast.size})"
        return f"for (int64_t {self.fast.var} = {self.start}; {self.fast.var} < {end}; ++{self.fast.var})"


def turned_reads(p: SweepPrinter) -> Turned | None:
    """The reads of a nest of rows or maps that are worth turning; None where there are none."""
    passes = p.nest.passes
    if p.chained or (len(passes) > 1 and not p.nest.reduces):
        return None
    candidates = _candidates(p)
    if not candidates:
        return None
    groups = {tuple(loop.group for loop in p.inner_loops(one)) for one in passes}
    inner = groups.pop()
    if groups or len(inner) != 1 or (p.nest.reduces and p.extent(inner[0]) > _WIDEST) or not p.is_vector(passes):
        return None
    (group,) = inner
    found: dict[Loop, list[tuple[Node, Load]]] = {}
    for loop, access, by in candidates:
        if abs(access.step(group[-1]) or 0) > NEAR:
            found.setdefault(loop, []).append(by)

    def elements(loop: Loop) -> int:
        return sum(p.extent(sorted(node.accesses[load].axes)) for node, load in found[loop])

    fast = max(found, key=elements, default=None)
    if fast is None or 2 * min(fast.extent, p.extent(group)) < p.lanes:
        return None
    return Turned(fast, p.lane_loop(group), tuple(found[fast]))


def _candidates(p: SweepPrinter) -> list[tuple[Loop, Access, tuple[Node, Load]]]:
    """Reads of neighbours along a loop over rows, one per place; where a buffer of rows will stand for a whole tensor,
    of tensors that are read at one place only."""
    found: dict[tuple[str, Access], tuple[Loop, Access, tuple[Node, Load]]] = {}
    places: dict[str, set[Access | None]] = {}
    for one in p.nest.passes:
        for node in (*one.heads, *one.nodes, *one.row_maps):
            for load in loads(node.body):
                if one.reads.get(load.tensor, "memory") != "memory":
                    continue
                access = node.accesses[load]
                terms = None if load.guards else access.terms
                places.setdefault(load.tensor, set()).add(None if terms is None else access)
                if node not in one.nodes or terms is None or computed(p.domain.tensors[load.tensor].dtype) != "f32":
                    continue
                for loop in p.rows:
                    if set(dict(terms).get(loop.group[-1], Size((), ())).values) in ({1}, {-1}):
                        found.setdefault((loop.var, access), (loop, access, (node, load)))
    alone = [row for row in found.values() if len(places[row[1].tensor]) == 1]
    return alone if p.nest.reduces else list(found.values())


def print_squares(p: SweepPrinter, found: Turned) -> None:
    """A nest of maps, in one pass: steps of the lanes, and in them blocks of rows."""
    one, fast, lane, many = p.nest.passes[0], found.fast, found.lane, p.schedule.unroll
    if many:
        p.unroll_parameter()
    step = "UNROLL * evo::lanes" if many else "evo::lanes"
    outer = [loop for loop in p.rows if loop != fast]
    columns = f"for (int64_t {lane.var} = 0; {lane.var} < {lane.size}; {lane.var} += {step})"
    heads = [*p.row_heads(outer), columns, found.blocks]
    tasks = p.extent([axis for loop in outer for axis in loop.group]) * (lane.extent // p.lanes + 1)
    p.pragma(len(heads) - (tasks >= _TASKS * p.kernel.plan.threads))
    with p.loops(heads):
        squares = _buffers(p, found, "square", f"{step} * evo::lanes", f"{step} * evo::lanes")
        with p.loops(p.unroll_heads(True)):
            _position(p, lane)
            at = " + u * evo::lanes * evo::lanes" if many else ""
            _turn(p, found, [f"{name}{at}" for name in squares], "evo::lanes", "at" if many else lane.var)
        with p.loops([found.rows]):
            late, hoisted = p.enter(one, lane)
            ctx = p.context([*p.rows, lane], True, one, lane)
            ctx.shared.update(hoisted)
            p.reciprocals_of(one, ctx)
            row = f"({'u * evo::lanes + ' if many else ''}{fast.var} - {found.start}) * evo::lanes"
            with p.loops(p.unroll_heads(True)):
                _position(p, lane)
                for (node, load), name in zip(found.reads, squares, strict=True):
                    value = p.names.fresh(f"{short_name(load.tensor)}_turned")
                    p.w(f"const evo::vec {value} = evo::load({name} + {row}, evo::all);")
                    ctx.shared[load.tensor, ctx.offset(node.accesses[load])] = Value(value, True, "f32")
                p.compute(one, ctx, late)


def turn_rows(p: SweepPrinter, found: Turned) -> list[str]:
    """At the head of a block of rows: turns all that they read, into buffers; the names of these."""
    lane = found.lane
    sizes = " * ".join(p.domain.shapes[axis].factors[0] for axis in lane.group)
    up = "+ evo::lanes - 1) / evo::lanes * evo::lanes"
    p.w(f"const int64_t width = ({lane.size} {up};")
    buffers = _buffers(p, found, "block", "evo::lanes * width", f"evo::lanes * (({sizes} {up})")
    with p.loops([f"for (int64_t {lane.var} = 0; {lane.var} < {lane.size}; {lane.var} += evo::lanes)"]):
        p.w(f"const int64_t n = evo::part({lane.size} - {lane.var}, false);")
        _turn(p, found, [f"{name} + {lane.var}" for name in buffers], "width", lane.var)
    return buffers


def enter_row(p: SweepPrinter, found: Turned, buffers: list[str]) -> None:
    """At the head of a row of a block: from here on its reads are of the buffers."""
    step = Size((), (1,) * p.domain.workloads)
    for (_, load), buffer in zip(found.reads, buffers, strict=True):
        name = p.names.fresh(f"{short_name(load.tensor)}_row")
        p.w(f"const float* {name} = {buffer} + ({found.fast.var} - {found.start}) * width;")
        p.row_buffers[load.tensor] = name
        p.turned[load.tensor] = Access(load.tensor, ((found.lane.group[-1], step),), 0)


def _buffers(p: SweepPrinter, found: Turned, word: str, each: str, defined: str) -> list[str]:
    """Prints where each of the reads is kept; `each`: so many floats per thread, `defined` in terms of sizes alone."""
    names = []
    for _, load in found.reads:
        names.append(p.names.fresh(f"{short_name(load.tensor)}_{word}"))
        p.kernel.piece(f"{names[-1]}s", "float", f"call->threads * {defined}", f"a {word} per thread, turned")
        p.w(f"float* {names[-1]} = {names[-1]}s + evo::omp_get_thread_num() * {each};")
    p.w(f"const int64_t tall = evo::part({found.fast.size} - {found.start}, false);")
    return names


def _turn(p: SweepPrinter, found: Turned, places: list[str], width: str, at: str) -> None:
    """Prints how a square of each of the reads gets to its place."""
    loops = [replace(loop, var=found.start) if loop == found.fast else loop for loop in p.rows]
    ctx = p.context([*loops, replace(found.lane, var=f"({at} + i)")], True, p.nest.passes[0])
    ctx.lane, ctx.lane_text = found.fast.group[-1], found.start
    for (node, load), place in zip(found.reads, places, strict=True):
        ctx.node = node
        with p.braces(f"evo::transpose({place}, {width}, tall, n, [&](int64_t i, int64_t n)", "});"):
            p.w(f"return {print_expr(load, ctx).text};")


def _position(p: SweepPrinter, lane: Loop) -> None:
    if p.schedule.unroll:
        p.position_in_step(lane)
    else:
        p.w(f"const int64_t n = evo::part({p.end(lane)} - {lane.var}, {p.whole(lane)});")
