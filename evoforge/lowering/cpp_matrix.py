"""Contractions in tiles of the processor's matrix unit: operands packed as brain floats, sums as floats.

A float operand is packed as the sum of several brain floats (`Kernel.matrix_parts`), unless its memory holds
fewer bits: 16-bit and 8-bit numbers need fewer parts. Tiles, parts and the packed layouts are those of
evoforge_matrix.h, which works on any processor.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from evoforge.core import Parameter
from evoforge.lowering.cpp_layout import Loop
from evoforge.lowering.cpp_packing import WIDTH
from evoforge.lowering.cpp_tiles import BANDS, Tiles
from evoforge.lowering.domain import Node
from evoforge.lowering.index import names as axes_of
from evoforge.lowering.ir import Cast, Expr, Load

if TYPE_CHECKING:
    from evoforge.lowering.cpp_sweep import SweepPrinter

__all__ = ["print_matrix"]

_PARTS = {"bf16": 1, "i8": 1, "u8": 1, "bool": 1, "f16": 2}
"""Brain floats that hold every number of a type."""
_PANEL_BYTES = 1 << 20
_TALL = 32  # rows at most that are multiplied at a time


def print_matrix(printer: SweepPrinter) -> bool:
    """Prints the nest; False, and nothing is printed, if matrix tiles do not fit it."""
    matrix = _Matrix(printer)
    fits = matrix.packed == "matrix"
    if fits:
        matrix.run()
    return fits


class _Matrix(Tiles):
    def run(self) -> None:
        p = self.p
        self.parts = {expr: self._parts(expr) for expr in (*self.narrows, *self.wides)}
        self.parameters()
        self.pack_narrow()
        heads = p.row_heads([loop for loop in self.outer if loop not in self.joined])
        heads.append(self.panel_head())
        heads.append(BANDS)
        p.pragma(len(heads))
        with p.loops(heads):
            p.w("evo::matrix_unit unit;")
            self.pack_wide()
            self._declare_sums()
            self.band()
            with p.loops(["for (int64_t tile = first; tile < last; tile += TILE_ROWS)"]):
                self.tile(True, True)

    def parameters(self) -> None:
        kernel, lanes = self.p.kernel, self.p.lanes
        across = -(-self.lane.extent // lanes) * prod(loop.extent for loop in self.joined)
        rows = tuple(c for c in (16, 32, 64) if c <= self.block.extent)
        vectors = tuple(c for c in (2, 4, 8, 16) if c // 2 < across) if across > 1 else (1,)
        self.beside = min(2, *vectors)  # vectors that lie, and are multiplied, together
        column = 2 * lanes * self.length * sum(self.parts[expr] for expr in self.wides)
        fitting = [c for c in vectors if c <= 8 and c * column <= _PANEL_BYTES]
        best = max(fitting, default=vectors[0])
        tile = [Parameter("TILE_ROWS", rows[min(1, len(rows) - 1)], rows), Parameter("TILE_VECTORS", best, vectors)]
        kernel.tied(tile)
        self.bands(-(-across // best))

    def _parts(self, expr: Expr) -> int:
        """Brain floats that an operand becomes: as many as what lies in memory needs, if nothing is computed of it."""
        most = self.p.kernel.matrix_parts
        made = {tensor: node.body for node in self.needed([expr]) for tensor in node.outputs}
        while isinstance(expr, Cast) or (isinstance(expr, Load) and expr.tensor in made):
            expr = expr.arg if isinstance(expr, Cast) else made[expr.tensor]
        if not isinstance(expr, Load) or (expr.guards and expr.other != 0):
            return most
        tensor = self.p.domain.tensors[expr.tensor]
        return most if tensor.kind == "tmp" else min(most, _PARTS.get(tensor.dtype, most))

    # the narrow operand

    def pack_narrow(self) -> None:
        p = self.p
        outer = self.left_outer = [o for o in self.outer if any(set(o.group) & axes_of(e) for e in self.narrows)]
        tiles = f"((({self.real(self.block.group)}) + TILE_ROWS - 1) / TILE_ROWS)"
        for expr, (node, _) in self.narrows.items():
            name = p.names.fresh(f"{p.names.of(node)}_left")
            steps = f"{self._padded(self.real(node.reduction))} * {self.parts[expr]}"
            count = " * ".join([*(self.real(o.group) for o in outer), tiles, "TILE_ROWS", steps])
            p.kernel.piece(name, "evo::bf16", count, "the narrow operand, a block of rows at a time")
            self.narrows[expr] = (node, name)
        p.w("// The narrow operand: the rows of a block side by side.")
        heads = [f"for (int64_t {loop.var} = 0; {loop.var} < {loop.size}; ++{loop.var})" for loop in outer]
        heads.append(f"for (int64_t tile = 0; tile < {self.block.size}; tile += TILE_ROWS)")
        p.pragma(len(heads))
        with p.loops(heads):
            p.w(f"const int64_t {self.block.var} = evo::min(tile, {self.block.size} - TILE_ROWS);")
            for expr, (_, name) in self.narrows.items():
                p.w(f"evo::bf16* {name}_tile = {name} + {self._left(expr)};")
            for expr, (node, name) in self.narrows.items():
                self._pack_rows(expr, node, f"{name}_tile")
        p.w("")

    def _pack_rows(self, expr: Expr, node: Node, name: str) -> None:
        """From vectors along the sum, from vectors across the rows, or one by one: as memory lies."""
        p, parts = self.p, self.parts[expr]
        fast, row = self.inner[-1].group[-1] if self.inner else "", self.block.group[-1]
        step = replace(self.inner[-1], var="(k + i)") if self.inner else self.block  # its steps are all of the sum's
        heads = [f"for (int64_t k = 0; k < {self.steps}; k += evo::deep)"]
        place = f"({name} + (k * {parts} * TILE_ROWS + r * evo::deep), {parts}, TILE_ROWS, {self.steps} - k"
        if fast and self._linear(expr, node, fast):
            with (
                p.loops([*heads, "for (int64_t r = 0; r < TILE_ROWS; ++r)"]),
                p.braces(f"evo::put_left{place}, [&](int64_t i, int64_t n)", "});"),
            ):
                p.w(f"return {self._value(expr, node, [self.of_block(), step], fast, step.var)};")
        elif len(self.inner) == 1 and self._linear(expr, node, row):
            with (
                p.loops([*heads, "for (int64_t r = 0; r < TILE_ROWS; r += evo::lanes)"]),
                p.braces(f"evo::put_left_across{place}, [&](int64_t i, int64_t n)", "});"),
            ):
                p.w(f"return {self._value(expr, node, [self.of_block(), step], row, self.of_block().var)};")
        else:
            p.w(f"evo::end_with_zeros({name}, 1, {parts} * TILE_ROWS, {self.steps});")
            with p.loops([*self.reduction_heads(), "for (int64_t r = 0; r < TILE_ROWS; ++r)"]):
                value = self._value(expr, node, [self.of_block(), *self.inner])
                p.w(f"evo::put_step({name}, {parts}, TILE_ROWS, r, {self.flat()}, float({value}));")

    def _value(self, expr: Expr, node: Node, loops: list[Loop], lane: str = "", text: str = "") -> str:
        """An operand's value at `loops`, as a vector along `lane` if that is given."""
        ctx = self.context([*self.left_outer, *loops], bool(lane))
        ctx.lane, ctx.lane_text = lane, text
        return self.values({expr: (node, "")}, ctx)[0].text

    def _linear(self, expr: Expr, node: Node, lane: str) -> bool:
        """Whether vectors of the operand along `lane` lie side by side: that of the rows, or the sum's last one.

        Steps of the sum that are neighbours have to be so in memory, across all of its axes.
        """
        accesses = self.read_for_vectors({expr: (node, "")}, lane)
        position = dict(self.p.position(node).terms or ())
        along = {axis: position[axis].values for loop in self.inner for axis in loop.group[-1:]}
        wanted = along if lane in along else {lane: (1,) * self.p.domain.workloads}
        if accesses is None:
            return False
        found = []
        for access in accesses:
            steps = {axis: size.values for axis, size in access.terms or () if axis in wanted}
            if steps and steps != wanted:
                return False
            found.append(bool(steps))
        return any(found)

    def _left(self, expr: Expr) -> str:
        """Where the packed rows of a block start."""
        return self.left(self.left_outer, f"{self._padded(self.steps)} * {self.parts[expr]}")

    # the wide operand

    def pack_wide(self) -> None:
        """Panels of columns; steps from memory that runs along the sum come in squares."""
        p = self.p
        for expr, (node, _) in self.wides.items():
            name = p.names.fresh(f"{p.names.of(node)}_panel")
            what = "a panel of columns per thread, in brain floats"
            real = f"call->threads * {self._padded(self.real(node.reduction))} * {self.parts[expr]} * {WIDTH}"
            p.kernel.piece(f"{name}s", "evo::bf16", real, what)
            self.wides[expr] = (node, name)
            own = f"evo::omp_get_thread_num() * {self._padded(self.steps)} * {self.parts[expr]} * {WIDTH}"
            p.w(f"evo::bf16* {name} = {name}s + {own};")
            each = f"{self.parts[expr]} * {self.beside} * evo::lanes"
            p.w(f"evo::end_with_zeros({name}, TILE_VECTORS / {self.beside}, {each}, {self.steps});")
        self.fill_panels(self.flat())

    def put_vector(self, expr: Expr, name: str, where: str, text: str) -> None:
        self.p.w(f"evo::put_right({self._of_vector(expr, name)}, {where}, {text});")

    def square(self, expr: Expr, name: str, where: str, count: str) -> str:
        return f"evo::put_right({self._of_vector(expr, name)}, {where}, {count}, n"

    def _of_vector(self, expr: Expr, name: str) -> str:
        """Where vectors lie that are multiplied together, and which one of them vector u is."""
        beside = self.beside
        start = f"{name} + u / {beside} * {beside} * {self._vector(expr)}"
        return f"{start}, {self.parts[expr]}, {beside}, u % {beside}"

    # products

    def tile(self, packs_narrow: bool, packs_wide: bool) -> None:
        p = self.p
        p.w(f"const int64_t {self.block.var} = evo::min(tile, {self.last} - TILE_ROWS);")
        for expr, (_, name) in self.narrows.items():
            p.w(f"const evo::bf16* {name}_tile = {name} + {self._left(expr)};")
        width = f"{self.beside} * evo::lanes"
        with p.loops([
            f"for (int64_t top = 0; top < TILE_ROWS; top += {_TALL})",
            f"for (int64_t side = 0; side < TILE_VECTORS; side += {self.beside})",
        ]):  # fmt: skip
            for product in self.found.products:
                left, right = self.parts[product.narrow], self.parts[product.wide]
                block = p.names.of(product.node) + "_block"
                p.w(f"evo::products<TILE_ROWS, {self.beside}, {left}, {right}> {block};")
                rows = f"{self.narrows[product.narrow][1]}_tile + (k * {left} * TILE_ROWS + top * evo::deep)"
                column = f"k * {right} * {width} + side * {self._vector(product.wide)}"
                columns = f"{self.wides[product.wide][1]} + ({column})"
                with p.loops([f"for (int64_t k = 0; k < {self.steps}; k += evo::deep)"]):
                    p.w(f"evo::multiply({block}, {rows}, {columns});")
                p.w(f"evo::put_sums({block}, {self.totals[product.node.name]}, {width});")
            rows = f"for (int64_t r = top; r < top + evo::min(int64_t(TILE_ROWS), int64_t({_TALL})); ++r)"
            vectors = f"for (int64_t u = side; u < side + {self.beside}; ++u)"
            place = f"(r - top) * {width} + (u - side) * evo::lanes"
            sums = {node: f"evo::load({name} + ({place}), evo::all)" for node, name in self.totals.items()}
            self.epilogue(sums, [rows, vectors])

    def _declare_sums(self) -> None:
        p, each = self.p, f"{_TALL} * {self.beside} * evo::lanes"
        self.totals = {
            product.node.name: p.names.fresh(f"{p.names.of(product.node)}_sums") for product in self.found.products
        }
        for name in self.totals.values():
            p.kernel.piece(f"{name}_all", "float", f"call->threads * {each}", "sums of a block, per thread")
            p.w(f"float* {name} = {name}_all + evo::omp_get_thread_num() * {each};")

    # sizes

    def _vector(self, expr: Expr) -> str:
        """Elements of a packed vector of a wide operand, over the whole sum."""
        return f"{self._padded(self.steps)} * {self.parts[expr]} * evo::lanes"

    def _padded(self, steps: str) -> str:
        return f"(({steps} + evo::deep - 1) / evo::deep * evo::deep)"
