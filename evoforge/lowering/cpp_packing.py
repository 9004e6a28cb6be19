"""The operands of a contraction, packed: rows of a block side by side, panels of columns.

A panel takes its vectors from several rows of the wide operand where the narrow one is the same for them all.
Operands whose memory runs along the sum are read along it and transposed in registers, whatever is computed of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from evoforge.lowering.contraction import LONGEST
from evoforge.lowering.cpp_body import in_brackets, needed
from evoforge.lowering.cpp_expr import Context, Value, affine_text, print_expr
from evoforge.lowering.cpp_layout import Loop
from evoforge.lowering.domain import Access, Node
from evoforge.lowering.index import names as axes_of
from evoforge.lowering.ir import Affine, Cast, Expr, Guard, Load, loads
from evoforge.lowering.lanes import can_vectorise
from evoforge.lowering.stages import CHEAP, operations

if TYPE_CHECKING:
    from evoforge.lowering.cpp_sweep import SweepPrinter

__all__ = ["WIDTH", "Packing"]

_SMALLEST = 16  # rows of a tile of the matrix unit
WIDTH = "(TILE_VECTORS * evo::lanes)"
"""Columns of a panel."""


class Packing:
    """Where the loops of a contraction are, and how its operands come side by side; `packed` as the schedule's gene."""

    def __init__(self, printer: SweepPrinter) -> None:
        assert printer.nest.contraction is not None
        self.p, self.found = printer, printer.nest.contraction
        self.one = printer.nest.passes[0]
        self.lane = replace(printer.lane_loop(printer.lane_group), var="at")
        walks = [loop for loop in printer.rows if set(loop.group) <= self.found.block - set(printer.chained[:-1])]
        self.block = max(walks, key=lambda loop: loop.extent)
        self.outer = [loop for loop in printer.rows if loop is not self.block]
        self.inner = printer.inner_loops(self.one)
        reduction = printer.domain.numel(self.found.products[0].node.reduction)
        self.length, self.steps = reduction.first, in_brackets(printer.names.text(reduction) or "1")
        self.packed = printer.nest.packed if self.cut or printer.nest.packed != "deep" else "both"
        if printer.chained and self.packed != "block":
            self.packed = "pack"  # the narrow operand is one block of rows, which is in the cache as it is
        self.first, self.last = printer.bounds(self.block)
        self.joined: list[Loop] = []
        self.across = self.vectors = ""
        self.narrows: dict[Expr, tuple[Node, str]] = {}
        self.wides: dict[Expr, tuple[Node, str]] = {}
        for product in self.found.products:
            self.narrows.setdefault(product.narrow, (product.node, ""))
            self.wides.setdefault(product.wide, (product.node, ""))
        made = [*self.narrows, *(node.body for node in self.needed(self.narrows))]
        if not printer.chained and self.packed not in ("deep", "matrix") and sum(map(operations, made)) > CHEAP:
            self.packed = "both"  # what takes so much to make is not made again for every panel
        if self.packed == "matrix" and (self.block.extent < _SMALLEST or not printer.kernel.matrix_parts):
            self.packed = "both"
        if self.packed == "whole" and any(set(o.group) & axes_of(expr) for o in self.outer for expr in self.wides):
            self.packed = "pack"  # there are many wide operands, and each is used for its own rows
        if self.packed not in ("block", "whole") and not printer.chained:
            self.joined = [o for o in self.outer if not any(set(o.group) & axes_of(expr) for expr in self.narrows)]
        self.ending = self._ending()

    @property
    def cut(self) -> bool:
        return self.length > LONGEST and bool(self.inner)

    def context(self, loops: Sequence[Loop], vector: bool) -> Context:
        ctx = self.p.context(loops, vector, self.one)
        ctx.vector, ctx.lane, ctx.lane_text = vector, self.lane.group[-1], self.lane.var
        ctx.known = dict(self.p.known)
        ctx.given = tuple(self.ending.values())
        return ctx

    def _ending(self) -> dict[str, Guard]:
        """Loops over the sum that end sooner for some of the outer loops, by variable: those beyond whose guard no
        operand is anything."""
        reads = [expr.arg if isinstance(expr, Cast) else expr for expr in (*self.narrows, *self.wides)]
        nothing = all(isinstance(read, Load) and read.other == 0 for read in reads)
        found: dict[str, Guard] = {}
        if not nothing or self.p.chained or self.packed in ("matrix", "whole"):
            return found
        around = {a for loop in self.outer if loop not in self.joined for a in loop.group}
        first, *rest = (read.guards for read in reads if isinstance(read, Load))
        for guard in (one for one in first if one.kind == "ge0" and all(one in others for others in rest)):
            factors = {atom: factor for factor, atom in guard.arg.terms}
            falling = [loop for loop in self.inner if len(loop.group) == 1 and factors.get(loop.group[0], 0) < 0]
            if len(falling) == 1 and set(factors) <= around | set(falling[0].group):  # linear, in these alone
                found.setdefault(falling[0].var, guard)
        return found

    def declare_ends(self, loops: Sequence[Loop]) -> None:
        """Prints where the loops over the sum end, inside of `loops`."""
        ctx = self.context(loops, False)
        for loop in self.inner:
            if loop.var in self.ending:
                rest, factor = _without(self.ending[loop.var].arg, loop.group[0])
                beyond = f"({affine_text(rest, ctx)} + {factor}) / {factor}"
                self.p.w(f"const int64_t {self.end(loop)} = evo::min({loop.size}, evo::max(int64_t(0), {beyond}));")

    def end(self, loop: Loop) -> str:
        """Where a loop ends."""
        return f"{loop.size}_here" if loop.var in self.ending else self.p.end(loop)

    @property
    def steps_here(self) -> str:
        """Products of one sum, where the outer loops stand."""
        return " * ".join(self.end(loop) for loop in self.inner) if self.ending else self.steps

    def of_block(self) -> Loop:
        return replace(self.block, var=f"({self.block.var} + r)")

    def values(self, exprs: dict[Expr, tuple[Node, str]], ctx: Context) -> list[Value]:
        """The operands' values, behind the maps that they read."""
        kept, self.p.known = self.p.known, ctx.known
        for node in self.needed(exprs):
            self.p.let(node, ctx)
        self.p.known = kept
        found = []
        for expr, (node, _) in exprs.items():
            ctx.node = node
            found.append(print_expr(expr, ctx))
        return found

    def needed(self, exprs: Iterable[Expr]) -> list[Node]:
        """The maps that `exprs` read, in order."""
        tensors = (load.tensor for expr in exprs for load in loads(expr))
        return needed(tensors, [*self.one.heads, *self.one.maps])

    def reduction_heads(self, start: str = "0", end: str = "", last_step: str = "") -> list[str]:
        """The loops over the reduction: the first one from `start` to `end`, the last one in steps of `last_step`."""
        heads = []
        for loop in self.inner:
            first = loop is self.inner[0]
            begin, stop = (start, end or self.end(loop)) if first else ("0", self.end(loop))
            step = f"{loop.var} += {last_step}" if last_step and loop is self.inner[-1] else f"++{loop.var}"
            heads.append(f"for (int64_t {loop.var} = {begin}; {loop.var} < {stop}; {step})")
        return heads

    def flat(self) -> str:
        """The position in the reduction, from the loops over it, which go as memory does: in any order, some merged."""
        node = self.found.products[0].node
        if self.inner and (self.ending or tuple(a for loop in self.inner for a in loop.group) != node.reduction):
            text = self.inner[0].var
            for loop in self.inner[1:]:
                text = f"({text} * {self.end(loop)} + {loop.var})"
            return text
        vars_of = {loop.group: loop.var for loop in self.inner}
        return in_brackets(self.p.offset(self.p.position(node), vars_of))

    def real(self, axes: Sequence[str]) -> str:
        """A product of sizes for the workspace, where names of sizes are not known yet."""
        return " * ".join(self.p.domain.shapes[a].factors[0] for a in axes) or "1"

    def pack_narrow(self) -> None:
        p = self.p
        outer = [o for o in self.outer if any(set(o.group) & axes_of(expr) for expr in self.narrows)]
        real = self.real(self.block.group)
        tiles = f"((({real}) + TILE_ROWS - 1) / TILE_ROWS)"
        reduction = self.real(self.found.products[0].node.reduction)
        for expr, (node, _) in self.narrows.items():
            name = p.names.fresh(f"{p.names.of(node)}_left")
            count = " * ".join([*(self.real(o.group) for o in outer), tiles, "TILE_ROWS", reduction])
            p.kernel.piece(name, "float", count, "the narrow operand, a block of rows at a time")
            self.narrows[expr] = (node, name)
        p.w("// The narrow operand: the rows of a block side by side.")
        heads = [f"for (int64_t {loop.var} = 0; {loop.var} < {loop.size}; ++{loop.var})" for loop in outer]
        heads.append(f"for (int64_t tile = 0; tile < {self.block.size}; tile += TILE_ROWS)")
        p.pragma(len(heads))
        with p.loops(heads):
            p.w(f"const int64_t {self.block.var} = evo::min(tile, {self.block.size} - TILE_ROWS);")
            self.declare_ends(outer)
            for _, name in self.narrows.values():
                p.w(f"float* {name}_tile = {name} + {self.left(outer)};")
            with p.loops([*self.reduction_heads(), "for (int64_t r = 0; r < TILE_ROWS; ++r)"]):
                ctx = self.context([*outer, self.of_block(), *self.inner], False)
                for (_, name), value in zip(self.narrows.values(), self.values(self.narrows, ctx), strict=True):
                    p.w(f"{name}_tile[{self.flat()} * TILE_ROWS + r] = {value.text};")
        p.w("")
        self.left_outer = outer

    def left(self, outer: Sequence[Loop], steps: str = "") -> str:
        """Where the packed rows of a block start, of which each takes `steps` elements."""
        steps = steps or self.steps
        text = ""
        for loop in outer:
            text = f"{loop.var}" if not text else f"({text} * {loop.size} + {loop.var})"
        blocks = f"(({self.block.size} + TILE_ROWS - 1) / TILE_ROWS)"
        return f"({text} * {blocks} + tile / TILE_ROWS) * TILE_ROWS * {steps}" if text else f"tile * {steps}"

    def pack_wide(self) -> None:
        self.panels(self.real(self.found.products[0].node.reduction), self.steps)
        self.fill_panels(self.flat())

    def panels(self, real: str, steps: str) -> None:
        p = self.p
        for expr, (node, _) in self.wides.items():
            name = p.names.fresh(f"{p.names.of(node)}_panel")
            what = "a panel of columns per thread"
            p.kernel.piece(f"{name}s", "float", f"call->threads * {real} * {WIDTH}", what)
            self.wides[expr] = (node, name)
            p.w(f"float* {name} = {name}s + evo::omp_get_thread_num() * {steps} * {WIDTH};")

    def fill_panels(self, where: str, start: str = "0", end: str = "") -> None:
        p = self.p
        if self.read_along_the_sum():
            self.transpose_into_panels(where, start, end)
            return
        with p.loops([*self.reduction_heads(start, end), *self.vector_heads()]):
            self.position()
            ctx = self.context([*self.outer, *self.inner, self.lane], True)
            for (expr, (_, name)), value in zip(self.wides.items(), self.values(self.wides, ctx), strict=True):
                self.put_vector(expr, name, where, value.text)

    def put_vector(self, expr: Expr, name: str, where: str, text: str) -> None:
        """Prints how a vector of a wide operand gets to its place in the panel `name`."""
        self.p.w(f"evo::store({name} + {where} * {WIDTH} + u * evo::lanes, {text}, evo::all);")

    def square(self, expr: Expr, name: str, where: str, count: str) -> str:
        """The start of a call that takes vectors along the sum, and puts `count` rows across them into the panel."""
        return f"evo::transpose({name} + {where} * {WIDTH} + u * evo::lanes, {WIDTH}, {count}, n"

    def read_along_the_sum(self) -> bool:
        """Whether memory of the wide operands runs along the sum and not along the lanes."""
        fast, lane = self.inner[-1].group[-1] if self.inner else "", self.lane.group[-1]
        if not fast or self.p.position(self.found.products[0].node).step(fast) != 1:
            return False
        accesses = self.read_for_vectors(self.wides, fast)
        if accesses is None or any(a.step(fast) not in (0, 1) or a.step(lane) == 1 for a in accesses):
            return False
        return any(access.step(fast) == 1 for access in accesses)

    def read_for_vectors(self, exprs: dict[Expr, tuple[Node, str]], lane: str) -> list[Access] | None:
        """What is read to make operands in vectors along `lane`; None if they cannot be, or if it is guarded."""
        maps = self.needed(exprs)
        inside = {tensor for node in maps for tensor in node.outputs}
        found = []
        for expr, node in [*((expr, node) for expr, (node, _) in exprs.items()), *((node.body, node) for node in maps)]:
            if not can_vectorise(expr, lane, node, self.p.domain.tensors):
                return None
            for load in loads(expr):
                if load.tensor in inside:
                    continue
                access = node.accesses[load]
                if load.guards or access.terms is None or self.one.reads.get(load.tensor, "memory") != "memory":
                    return None
                found.append(access)
        return found

    def transpose_into_panels(self, where: str, start: str, end: str) -> None:
        """Panels from memory that runs along the sum: squares of vectors, instead of gathers."""
        p, fast = self.p, self.inner[-1]
        stop = end if end and len(self.inner) == 1 else self.end(fast)
        with p.loops([*self.reduction_heads(start, end, "evo::lanes"), *self.vector_heads()]):
            self.position()
            ctx = self.context([*self.outer, *self.inner, replace(self.lane, var="(at + i)")], True)
            ctx.lane, ctx.lane_text = fast.group[-1], fast.var
            for expr, (node, name) in self.wides.items():
                square = self.square(expr, name, where, f"evo::part({stop} - {fast.var}, false)")
                with p.braces(f"{square}, [&](int64_t i, int64_t n)", "});"):
                    p.w(f"return {self.values({expr: (node, name)}, ctx)[0].text};")

    def vector_heads(self) -> list[str]:
        return ["#pragma GCC unroll 8", "for (int64_t u = 0; u < TILE_VECTORS; ++u)"]

    @property
    def ragged(self) -> bool:
        """Whether the last vector of a row starts earlier, so that it is a whole one: as blocks of rows do."""
        sizes, lanes = self.p.domain.numel(self.lane.group).values, self.p.lanes
        return self.p.end(self.lane) == self.lane.size and min(sizes) >= lanes and any(size % lanes for size in sizes)

    def position(self) -> None:
        """Where vector u of a panel stands, and how many of its lanes take part."""
        end = self.p.end(self.lane)
        at, outer = "col + u * evo::lanes", list[str]()
        if self.joined:
            self.p.w(f"const int64_t vector = evo::min(panel + u, {self.vectors} - 1);")
            at, rest = f"vector % {self.across} * evo::lanes", f"vector / {self.across}"
            for loop in reversed(self.joined[1:]):
                outer.append(f"{loop.var} = {rest} % {loop.size}")
                rest = f"{rest} / {loop.size}"
            outer.append(f"{self.joined[0].var} = {rest}")
        if self.ragged:
            at, enough = f"evo::min({at}, evo::max({end} - evo::lanes, int64_t(0)))", f"{end} >= evo::lanes"
        else:
            enough = f"{end} % {'evo::lanes' if self.joined else WIDTH} == 0"
        whole = self.p.kernel.flag("whole", enough) if end == self.lane.size else "false"
        self.p.w(f"const int64_t {', '.join([f'at = {at}', *outer])}, n = evo::part({end} - at, {whole});")


def _without(arg: Affine, name: str) -> tuple[Affine, int]:
    """An index without one of its axes, and how much it falls with each step of that."""
    factor = next(-factor for factor, atom in arg.terms if atom == name)
    return Affine(tuple(term for term in arg.terms if term[1] != name), arg.const), factor
