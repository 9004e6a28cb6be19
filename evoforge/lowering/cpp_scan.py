"""Scans: every row runs along the scanned axis, a vector of rows at a time where neighbours are rows, or a vector of
steps where neighbours are steps.

Sums and products are kept in double, or for vectors of rows as a part of at most 256 steps beside what came before, so
that long rows stay accurate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evoforge.lowering.cpp_body import in_lanes
from evoforge.lowering.cpp_expr import CTYPES, print_expr
from evoforge.lowering.cpp_layout import Loop
from evoforge.lowering.lanes import computed
from evoforge.lowering.simplify import dtype_of

if TYPE_CHECKING:
    from evoforge.lowering.cpp_sweep import SweepPrinter
    from evoforge.lowering.domain import Node

__all__ = ["print_scan"]

_JOINED = {
    "sum": "{a} + {b}", "prod": "{a} * {b}", "max": "evo::max({a}, {b})", "min": "evo::min({a}, {b})",
    "logsum": "evo::logaddexp({a}, {b})",
}  # fmt: skip
_START = {
    "sum": "0", "prod": "1", "max": "evo::detail::lowest<{t}>()", "min": "evo::detail::highest<{t}>()",
    "logsum": "evo::detail::lowest<{t}>()",
}  # fmt: skip
_WIDE = ("sum", "prod", "logsum")
_RUNNING = ("sum", "prod", "max", "min")


def print_scan(printer: SweepPrinter) -> None:
    p, one = printer, printer.nest.passes[0]
    node = one.reduces[0]
    monoid, vector = str(node.monoid), p.nest.columns and p.vector
    lane = p.lane_loop(p.lane_group) if p.nest.columns else None
    steps = [Loop((a,), "step", p.names.size((a,), "steps"), p.extent((a,))) for a in node.reduction]
    if lane is None and monoid in _RUNNING and len(steps) == 1 and p.is_vector([one]):
        _print_steps(p, node, steps[0])
        return
    heads = [f"for (int64_t {loop.var} = 0; {loop.var} < {loop.size}; ++{loop.var})" for loop in p.rows]
    if lane is not None:
        advance = f"{lane.var} += evo::lanes" if vector else f"++{lane.var}"
        heads.append(f"for (int64_t {lane.var} = 0; {lane.var} < {lane.size}; {advance})")
    if heads:
        p.pragma(len(heads))
    with p.loops(heads):
        dtype = computed(dtype_of(node.body, p.domain.tensors))
        wide = "double" if dtype == "f32" and monoid in _WIDE else CTYPES[dtype]
        start = _START[monoid].format(t="float" if vector else wide)
        if vector:
            assert lane is not None
            whole = p.kernel.flag("whole", f"{lane.size} % evo::lanes == 0")
            p.w(f"const int64_t n = evo::part({lane.size} - {lane.var}, {whole});")
            p.w(f"evo::vec before = evo::broadcast(float({start})), part = before;")
        else:
            p.w(f"{wide} so_far = {start};")
        current = "part" if vector else "so_far"
        with p.loops([f"for (int64_t {loop.var} = 0; {loop.var} < {loop.size}; ++{loop.var})" for loop in steps]):
            if not vector:
                p.w("evo::one_by_one();")
            ctx = p.context([*p.rows, *steps, *([lane] if lane is not None else [])], vector, one)
            if lane is not None:
                ctx.lane, ctx.lane_text = lane.group[-1], lane.var
            outside = dict(p.known)
            for before in (*one.heads, *one.maps):
                p.let(before, ctx)
            ctx.node = node
            value = print_expr(node.body, ctx)
            text = f"{wide}({value.text})"
            if vector:
                text = f"({value.text})" if value.vector else f"evo::broadcast({value.text})"
            push = f"{current} = {_JOINED[monoid].format(a=current, b=text)};"
            joined = _JOINED[monoid].format(a="before", b="part")
            out = next(o for o in node.outputs if o)
            place = ctx.offset(node.write)
            if vector:
                store = f"evo::store({p.pointer(out)} + {place}, {joined}, n);"
            else:
                t = p.domain.tensors[out]
                ctype = CTYPES[t.dtype if t.kind == "out" else computed(t.dtype)]
                store = f"{p.pointer(out)}[{place}] = {ctype}({'float' if '16' in t.dtype else ''}({current}));"
            p.w(push)
            p.w(store)
            if vector:
                p.w(f"if (step % 256 == 255) before = {joined}, part = evo::broadcast(float({start}));")
            p.known.clear()
            p.known.update(outside)


def _print_steps(p: SweepPrinter, node: Node, loop: Loop) -> None:
    """A vector of steps at a time: what runs inside it, beside what came before it."""
    one, monoid = p.nest.passes[0], str(node.monoid)
    wide = "double" if monoid in _WIDE else "float"
    start = _START[monoid].format(t="float")
    heads = [f"for (int64_t {row.var} = 0; {row.var} < {row.size}; ++{row.var})" for row in p.rows]
    if heads:
        p.pragma(len(heads))
    with p.loops(heads):
        whole = p.kernel.flag("whole", f"{loop.size} % evo::lanes == 0")
        p.w(f"{wide} so_far = {start};")
        with p.loops([f"for (int64_t {loop.var} = 0; {loop.var} < {loop.size}; {loop.var} += evo::lanes)"]):
            p.w(f"const int64_t n = evo::part({loop.size} - {loop.var}, {whole});")
            ctx = p.context([*p.rows, loop], True, one)
            ctx.lane, ctx.lane_text = loop.group[-1], loop.var
            for before in (*one.heads, *one.maps):
                p.let(before, ctx)
            ctx.node = node
            p.w(f"const evo::vec part = evo::running_{monoid}({in_lanes(print_expr(node.body, ctx))});")
            out = next(o for o in node.outputs if o)
            joined = _JOINED[monoid].format(a="evo::broadcast(float(so_far))", b="part")
            p.w(f"evo::store({p.pointer(out)} + {ctx.offset(node.write)}, {joined}, n);")
            p.w(f"so_far = {_JOINED[monoid].format(a='so_far', b='evo::last(part)')};")
