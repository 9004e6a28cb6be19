"""Nests whose lanes are rows of their own: vectors lie along a kept axis, reductions run serially."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from evoforge.lowering.cpp_body import FIELDS, in_brackets, in_lanes, needed, reads_of
from evoforge.lowering.cpp_expr import CTYPES, Context, Value
from evoforge.lowering.domain import Access, Node
from evoforge.lowering.lanes import computed
from evoforge.lowering.nests import Pass
from evoforge.lowering.simplify import dtype_of

if TYPE_CHECKING:
    from evoforge.lowering.cpp_layout import Loop
    from evoforge.lowering.cpp_sweep import SweepPrinter

__all__ = ["print_columns"]


def print_columns(printer: SweepPrinter) -> None:
    """Tasks are panels of columns (and chunks of the reduced axis, to be combined afterwards)."""
    nest, vector = printer.nest, printer.vector
    lane = printer.lane_loop(printer.lane_group)
    rows = printer.row_heads(printer.rows)
    columns = printer.lane_heads(lane, vector)
    if nest.chunked and printer.inner_loops(nest.passes[0]):
        _chunked(printer, lane, rows, columns)
        return
    printer.pragma(len(rows) + 1)
    with printer.loops([*rows, *columns]):
        _slabs(printer, lane)
        _width(printer, lane)
        for number, one in enumerate(nest.passes):
            if number:
                printer.w("")
            _pass(printer, one, number, lane, "", "")
            _finish(printer, one, lane)


def _chunked(printer: SweepPrinter, lane: Loop, rows: list[str], columns: list[str]) -> None:
    one = printer.nest.passes[0]
    loop = printer.inner_loops(one)[0]
    choices = tuple(c for c in (16, 64, 256, 1024, 4096) if c < loop.extent) or (16,)
    printer.kernel.parameter("CHUNK_ROWS", choices, choices[len(choices) // 2])
    count = f"(({loop.size} + CHUNK_ROWS - 1) / CHUNK_ROWS)"
    many = printer.vector and printer.schedule.unroll
    width = "(UNROLL * evo::lanes)" if many else "evo::lanes" if printer.vector else "1"
    panels = f"(({lane.size} + {width} - 1) / {width})"
    chunk = f"for (int64_t chunk = 0; chunk < {loop.size}; chunk += CHUNK_ROWS)"
    flat = _flat(printer)
    sizes = " * ".join(["1", *[_definition(printer, loop.group) for loop in printer.rows]])
    count_of = count.replace(loop.size, f"({_definition(printer, loop.group)})")
    panels_of = panels.replace(lane.size, f"({_definition(printer, lane.group)})")
    parts: dict[str, str] = {}
    for node in one.reduces:
        kind = printer.accumulator(node, printer.vector)
        parts[node.name] = printer.names.fresh(f"{printer.names.of(node)}_parts")
        each = f"{sizes} * {count_of} * {panels_of}{' * UNROLL' if many else ''}".removeprefix("1 * ")
        printer.kernel.piece(parts[node.name], kind, each, "of every chunk")
    times = " * UNROLL + u" if many else ""
    number = f"({flat}{count} + {{chunk}})" if flat else "({chunk})"
    where = f"({number} * {panels} + {lane.var} / {width}){times}"
    printer.pragma(len(rows) + 2)
    with printer.loops([*rows, chunk, *columns]):
        _width(printer, lane)
        _pass(printer, one, 0, lane, "chunk", f"evo::min(chunk + CHUNK_ROWS, {loop.size})")
        with printer.loops(printer.unroll_heads(printer.vector)):
            for node in one.reduces:
                place = where.format(chunk="chunk / CHUNK_ROWS")
                printer.w(f"{parts[node.name]}[{place}] = {printer.accumulated[node.name]};")
    printer.w("// the chunks of every column are combined in order")
    printer.pragma(len(rows) + 1)
    with printer.loops([*rows, *columns]):
        _width(printer, lane)
        for node in one.reduces:
            kind = printer.accumulator(node, printer.vector)
            printer.w(f"{kind} {printer.accumulated[node.name].replace('[u]', '[UNROLL]')};")
        with printer.loops([f"for (int64_t k = 0; k < {count}; ++k)", *printer.unroll_heads(printer.vector)]):
            for node in one.reduces:
                printer.w(f"{printer.accumulated[node.name]}.merge({parts[node.name]}[{where.format(chunk='k')}]);")
        _finish(printer, one, lane)


def _flat(printer: SweepPrinter) -> str:
    text = ""
    for loop in printer.rows:
        text = f"({text}{loop.var}) * " if not text else f"({text}{loop.size} + {loop.var}) * "
    return text


def _definition(printer: SweepPrinter, group: Sequence[str]) -> str:
    return " * ".join(printer.domain.shapes[a].factors[0] for a in group) or "1"


def _width(printer: SweepPrinter, lane: Loop) -> None:
    """Without unrolling the number of lanes is the same in all passes."""
    if printer.vector and not printer.schedule.unroll:
        printer.w(f"const int64_t n = evo::part({printer.end(lane)} - {lane.var}, {printer.whole(lane)});")


def _slabs(printer: SweepPrinter, lane: Loop) -> None:
    width = (
        "UNROLL * evo::lanes" if printer.vector and printer.schedule.unroll else "evo::lanes" if printer.vector else "1"
    )
    for tensor in dict.fromkeys(t for one in printer.nest.passes for t, how in one.stores if how == "row"):
        producer = printer.domain.producer(tensor)
        assert producer is not None
        inner = [a for a in producer.axes if a not in printer.nest.rows]
        ctype = CTYPES[computed(printer.domain.tensors[tensor].dtype)]
        name = printer.names.fresh(f"{printer.names.of(producer)}_slab")
        full = " * ".join(printer.domain.shapes[a].factors[0] for a in inner) or "1"
        printer.kernel.piece(
            f"{name}s",
            ctype,
            f"call->threads * ({full}) * {width}",
            f"the panel of {producer.origin or producer.name} per thread",
        )
        count = printer.names.text(printer.domain.numel(inner)) or "1"
        printer.w(f"{ctype}* {name} = {name}s + evo::omp_get_thread_num() * ({count}) * {width};")
        printer.row_buffers[tensor] = name


def _context(printer: SweepPrinter, one: Pass, lane: Loop, inner: Sequence[Loop]) -> Context:
    ctx = printer.context([*printer.rows, *inner, lane], printer.vector, one, lane)
    inside = ctx.offset
    many = printer.vector and printer.schedule.unroll
    width = "(UNROLL * evo::lanes)" if many else "evo::lanes" if printer.vector else "1"

    def offset(access: Access) -> str:
        if one.reads.get(access.tensor) != "row" and access.tensor != "@row":
            return inside(access)
        vars_of = {loop.group: loop.var for loop in inner}
        own = access if access.tensor == "@row" else printer.in_row(access.tensor)
        flat = in_brackets(printer.offset(own, vars_of))
        return f"{flat} * {width} + u * evo::lanes" if many else f"{flat} * {width}"

    ctx.offset = offset
    return ctx


def _pass(printer: SweepPrinter, one: Pass, number: int, lane: Loop, start: str, top: str) -> None:
    inner = printer.inner_loops(one)
    printer.declare(one, printer.vector)
    printer.heads += one.heads
    late = _needed(printer, one.nodes)
    heads = []
    for position, loop in enumerate(inner):
        first, end = (start, top) if position == 0 and start else ("0", printer.end(loop))
        heads.append(f"for (int64_t {loop.var} = {first}; {loop.var} < {end}; ++{loop.var})")
    ctx = _context(printer, one, lane, inner)
    unrolled = printer.unroll_heads(printer.vector)
    if not printer.long:
        heads, unrolled = [*heads, *unrolled], []
    # Where there is one step, braces keep the names of a pass apart from those of the next.
    with printer.loops(heads) if heads else printer.braces(""):
        with printer.loops(unrolled):
            if printer.vector and printer.schedule.unroll:
                printer.position_in_step(lane)
            elif not printer.vector:
                printer.w("evo::one_by_one();")
            printer.statements(one, ctx, late, number, inner)
        printer.step_done()
    printer.sums_done()
    for node in one.reduces:
        fields = FIELDS.get(node.monoid or "", ("value",))
        dtype = computed(dtype_of(node.body, printer.domain.tensors))
        texts = [f"{printer.accumulated[node.name]}.{field}" for field in fields]
        if printer.in_double(node, printer.vector):
            texts = [f"float({text})" for text in texts]
        printer.known_results(node, texts, dtype, printer.vector)


def _needed(printer: SweepPrinter, readers: Sequence[Node]) -> list[Node]:
    """Maps over rows that a pass, or what follows it, wants: they are vectors, so all compute their own."""
    return needed(reads_of(readers), printer.heads)


def _finish(printer: SweepPrinter, one: Pass, lane: Loop) -> None:
    if not one.row_maps and not one.row_stores:
        return
    outside = dict(printer.known)
    with printer.loops(printer.unroll_heads(printer.vector)):
        if printer.vector and printer.schedule.unroll:
            printer.position_in_step(lane)
        ctx = _context(printer, one, lane, [])
        for node in (*(n for n in _needed(printer, one.row_maps) if n not in one.row_maps), *one.row_maps):
            printer.let(node, ctx)
        for tensor in one.row_stores:
            _store(printer, tensor, ctx)
    printer.heads += [node for node in one.row_maps if not set(node.outputs) & set(one.row_stores)]
    printer.known.clear()
    printer.known.update(outside)


def _store(printer: SweepPrinter, tensor: str, ctx: Context) -> None:
    if not printer.vector:
        printer.store_row(tensor, ctx)
        return
    value: Value = printer.known[tensor]
    access = printer.written(tensor)
    text = in_lanes(value)
    printer.put(tensor, f"{printer.pointer(tensor)} + {ctx.offset(access)}", text, access, ctx)
