"""Nests that cut long rows into chunks: partial reductions in parallel, then a combination in order.

The result does not depend on the number of threads: chunks have a fixed size and are combined one
after the other. Chunks also keep long sums accurate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evoforge.lowering.cpp_body import needed, reads_of

if TYPE_CHECKING:
    from evoforge.lowering.cpp_sweep import SweepPrinter

__all__ = ["print_chunks"]


def print_chunks(printer: SweepPrinter) -> None:
    one = printer.nest.passes[0]
    inner = printer.inner_loops(one)
    vector = printer.is_vector([one])
    rows = [f"for (int64_t {loop.var} = 0; {loop.var} < {loop.size}; ++{loop.var})" for loop in printer.rows]
    if not inner:
        _whole_rows(printer, rows)
        return
    loop = inner[0]
    if len(inner) == 1:
        least = 16 * printer.lanes if vector else 16
        choices = tuple(c for c in (1024, 2048, 4096, 8192, 16384, 32768) if least <= c < loop.extent) or (1024,)
        name = printer.kernel.parameter("CHUNK", choices, choices[len(choices) // 2])
    else:
        choices = tuple(c for c in (1, 4, 16, 64, 256) if c < loop.extent) or (1,)
        name = printer.kernel.parameter("CHUNK_ROWS", choices, choices[len(choices) // 2])
    count = f"(({loop.size} + {name} - 1) / {name})"
    flat = ""
    for row in printer.rows:
        flat = f"{row.var} * " if not flat else f"({flat}{row.size} + {row.var}) * "
    sizes = [" * ".join(printer.domain.shapes[a].factors[0] for a in row.group) for row in printer.rows]
    real = " * ".join(printer.domain.shapes[a].factors[0] for a in loop.group)
    each = " * ".join([*sizes, count.replace(loop.size, f"{real}" if " " not in real else f"({real})", 1)])
    parts: dict[str, str] = {}
    kinds: dict[str, str] = {}
    for node in one.reduces:
        parts[node.name] = printer.names.fresh(f"{printer.names.of(node)}_parts")
        lanes = printer.accumulator(node, vector)
        kinds[node.name] = lanes.replace("evo::vec", "float").replace("evo::ivec", "int64_t")  # across them
        printer.kernel.piece(parts[node.name], kinds[node.name], each, "of every chunk")
    printer.pragma(len(rows) + 1)
    with printer.loops([*rows, f"for (int64_t chunk = 0; chunk < {loop.size}; chunk += {name})"]):
        outer = printer.context(printer.rows, False, one)
        late = [n for n in one.heads if set(inner[-1].group) & set(n.axes)]
        for node in one.heads:
            if node not in late:
                printer.let(node, outer)
        hoisted = printer.hoist(one, outer)
        accumulators = printer.declare(one, vector)
        ctx = printer.context([*printer.rows, *inner], vector, one, inner[-1])
        ctx.shared.update(hoisted)
        printer.sweep(one, ctx, inner, late, 0, "chunk", f"evo::min(chunk + {name}, {loop.size})")
        for node in one.reduces:
            place = f"{flat}{count} + chunk / {name}" if flat else f"chunk / {name}"
            printer.w(f"{parts[node.name]}[{place}] = evo::across({accumulators[node.name]});")
    printer.w("// the chunks are combined in order")
    if rows:
        printer.pragma(len(rows))
    with printer.loops(rows):
        for node in one.reduces:
            printer.w(f"{kinds[node.name]} {accumulators[node.name]}_whole;")
        with printer.loops([f"for (int64_t k = 0; k < {count}; ++k)"]):
            for node in one.reduces:
                place = f"{flat}{count} + k" if flat else "k"
                printer.w(f"{accumulators[node.name]}_whole.merge({parts[node.name]}[{place}]);")
        for node in needed(reads_of(one.row_maps), one.heads):
            printer.let(node, outer)
        for node in one.reduces:
            printer.result(node, f"{accumulators[node.name]}_whole", vector)
        printer.after(one)


def _whole_rows(printer: SweepPrinter, rows: list[str]) -> None:
    if rows:
        printer.pragma(len(rows))
    with printer.loops(rows):
        printer.row_pass(printer.nest.passes[0], 0)
