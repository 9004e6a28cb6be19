"""Software prefetch: of the row that a sweep reads, at a distance, or of the next row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from evoforge.lowering.cpp_expr import Context
from evoforge.lowering.domain import Access
from evoforge.lowering.nests import Pass
from evoforge.lowering.regions import is_tensor_sized

if TYPE_CHECKING:
    from evoforge.lowering.cpp_layout import Loop
    from evoforge.lowering.cpp_sweep import SweepPrinter

__all__ = ["prefetches", "wanted"]


def wanted(printer: SweepPrinter, one: Pass) -> list[Access]:
    """Tensor-sized reads from memory that a pass is the first of its nest to make."""
    nest = printer.nest
    earlier: set[str] = set()
    for other in nest.passes:
        if other is one:
            break
        earlier |= {access.tensor for access in _reads(printer, other)}
    return [access for access in _reads(printer, one) if access.tensor not in earlier]


def _reads(printer: SweepPrinter, one: Pass) -> list[Access]:
    found: dict[tuple[str, int], Access] = {}
    for node in one.nodes:
        for access in node.reads():
            large = is_tensor_sized(printer.domain, tuple(access.axes))
            if one.reads.get(access.tensor, "memory") == "memory" and access.terms and large:
                found.setdefault((access.tensor, access.const), access)
    return list(found.values())


def prefetches(printer: SweepPrinter, one: Pass, ctx: Context, number: int, inner: Sequence[Loop]) -> list[str]:
    """The statements to put at the head of a sweep's body."""
    schedule, nest = printer.schedule, printer.nest
    if schedule.prefetch == "none" or not inner or printer.turned:
        return []
    columns = nest.columns and nest.reduces
    across_rows = bool(printer.rows) and not columns and not nest.chunked
    if schedule.prefetch == "ahead" or not across_rows:
        return _ahead(printer, one, ctx, inner, columns)
    last = len(nest.passes) - 1
    if schedule.prefetch == "next" and number != {"first": 0, "middle": (last + 1) // 2}.get(schedule.during, last):
        return []
    row = printer.rows[-1]
    swept = {a for loop in inner for a in loop.group}
    outer = {a for loop in printer.rows for a in loop.group}
    lines = []
    for access in wanted(printer, nest.passes[0]):
        if not access.axes - outer or not (access.axes - outer) <= swept or access.step(row.group[-1]) == 0:
            continue
        step = printer.names.text(dict(access.terms or ())[row.group[-1]]) or "1"
        where = ctx.offset(access)
        if schedule.prefetch == "spread" and last > 0:
            var = ctx.lane_text
            share = f"{var} / {last + 1}" + (f" + {number} * {inner[-1].size} / {last + 1}" if number else "")
            where = re.sub(rf"\b{var}\b", f"({share})", where)
        lines.append(f"evo::prefetch({ctx.pointers[access.tensor]} + {where} + {step});")
    return lines


def _ahead(printer: SweepPrinter, one: Pass, ctx: Context, inner: Sequence[Loop], columns: bool) -> list[str]:
    accesses = wanted(printer, one)
    if not accesses:
        return []
    lines = []
    for access in accesses:
        last = inner[-1].group[-1]
        step = (
            printer.names.text(dict(access.terms or ()).get(last) or printer.domain.numel(()))
            if last in access.axes
            else ""
        )
        if last not in access.axes:
            continue
        distance = "STEPS_AHEAD" if columns else "AHEAD"
        text = f"{distance} * {step}" if step else distance
        lines.append(f"evo::prefetch({ctx.pointers[access.tensor]} + {ctx.offset(access)} + {text});")
    if lines and columns:
        printer.kernel.parameter("STEPS_AHEAD", (1, 2, 4, 8, 16), 4)
    elif lines:
        printer.kernel.parameter("AHEAD", (128, 256, 512, 1024, 2048), 512)
    return lines
