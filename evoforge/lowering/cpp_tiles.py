"""Contractions in register blocks: TILE_ROWS rows by TILE_VECTORS vectors of accumulators.

Blocks at a ragged end start earlier instead of being cut, so that every block is whole: rows that two
blocks share are computed twice, to the same bits. Long sums are cut into pieces of DEPTH, which are added up
in order, so that they stay accurate. Where accumulators are summed in a function of their own, all registers are
theirs; what the call costs, short sums feel, and with one set of accumulators compilers spill none without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod, sqrt
from typing import TYPE_CHECKING

from evoforge.core import Parameter
from evoforge.lowering.cpp_body import in_brackets
from evoforge.lowering.cpp_expr import Context, affine_text, guards_text
from evoforge.lowering.cpp_packing import WIDTH, Packing
from evoforge.lowering.index import names as axes_of
from evoforge.lowering.ir import Guard, Load
from evoforge.lowering.masked import where_read

if TYPE_CHECKING:
    from evoforge.lowering.cpp_sweep import SweepPrinter

__all__ = ["BANDS", "Tiles", "print_tiles"]

_LINE = 16  # floats in a line of the cache
_NEAR = 1024  # elements; what lies nearer ahead than that comes too late
_FEWEST = 64  # rows of a band: a number of the panel is packed in the time of some ten products
BANDS = "for (int64_t band = 0; band < BANDS; ++band)"


def print_tiles(printer: SweepPrinter) -> None:
    Tiles(printer).run()


class Tiles(Packing):
    def run(self) -> None:
        p = self.p
        self.parameters()
        if self.packed == "whole":
            self.run_whole()
            return
        packs_narrow, packs_wide = self.packed in ("both", "deep"), self.packed != "block"
        if packs_narrow:
            self.pack_narrow()
        around = [loop for loop in self.outer if loop not in self.joined]
        heads = [*p.row_heads(around), self.panel_head()]
        if p.chained:
            with p.loops(heads):
                if packs_wide:
                    self.pack_wide()
                with p.loops([f"for (int64_t tile = {self.first}; tile < {self.last}; tile += TILE_ROWS)"]):
                    self.tile(packs_narrow, packs_wide)
            return
        if packs_wide:
            heads.append(BANDS)
            p.pragma(len(heads), uneven=self.uneven)
            with p.loops(heads):
                self.declare_ends(around)
                if self.packed != "deep":
                    self.pack_wide()
                self.band()
                if self.packed == "deep":
                    self.pieces()
                    return
                with p.loops(["for (int64_t tile = first; tile < last; tile += TILE_ROWS)"]):
                    self.tile(packs_narrow, packs_wide)
        else:
            heads.append(f"for (int64_t tile = 0; tile < {self.block.size}; tile += TILE_ROWS)")
            p.pragma(len(heads), uneven=self.uneven)
            with p.loops(heads):
                self.declare_ends(around)
                self.tile(packs_narrow, packs_wide)

    @property
    def uneven(self) -> bool:
        """Whether some tiles have less to sum than others."""
        return bool(self.ending or where_read(self.one))

    def panel_head(self) -> str:
        """The loop over panels: of vectors of all joined loops, or of columns."""
        p = self.p
        if not self.joined:
            return f"for (int64_t col = 0; col < {p.end(self.lane)}; col += {WIDTH[1:-1]})"
        self.across, self.vectors = p.names.fresh("across"), p.names.fresh("vectors")
        across = f"const int64_t {self.across} = ({self.lane.size} + evo::lanes - 1) / evo::lanes"
        p.w(f"{across}, {self.vectors} = {' * '.join(loop.size for loop in self.joined)} * {self.across};")
        return f"for (int64_t panel = 0; panel < {self.vectors}; panel += TILE_VECTORS)"

    def band(self) -> None:
        """The rows of one of BANDS."""
        tiles = f"(({self.block.size} + TILE_ROWS - 1) / TILE_ROWS)"
        self.p.w(f"const int64_t first = {tiles} * band / BANDS * TILE_ROWS;")
        self.p.w(f"const int64_t last = evo::min({tiles} * (band + 1) / BANDS * TILE_ROWS, {self.block.size});")

    def run_whole(self) -> None:
        """All panels first, for all threads; then block after block of rows, each with every panel."""
        p = self.p
        real = f"({self.real(self.lane.group)} + {WIDTH} - 1) / {WIDTH} * {WIDTH}"
        reduction = self.real(self.found.products[0].node.reduction)
        panels = f"for (int64_t col = 0; col < {p.end(self.lane)}; col += {WIDTH[1:-1]})"
        for expr, (node, _) in self.wides.items():
            name = p.names.fresh(f"{p.names.of(node)}_panel")
            p.kernel.piece(
                f"{name}s", "float", f"{real} * {reduction}", "the wide operand, a panel of columns at a time"
            )
            self.wides[expr] = (node, name)
        p.w("// The wide operand: the columns of a panel side by side.")
        p.pragma(1)
        with p.loops([panels]):
            for _, name in self.wides.values():
                p.w(f"float* {name} = {name}s + col * {self.steps};")
            self.fill_panels(self.flat())
        p.w("")
        heads = [*p.row_heads(self.outer), f"for (int64_t tile = 0; tile < {self.block.size}; tile += TILE_ROWS)"]
        p.pragma(len(heads), uneven=self.uneven)
        with p.loops(heads):
            self.stand(False)
            with p.loops([panels]):
                for _, name in self.wides.values():
                    p.w(f"const float* {name} = {name}s + col * {self.steps};")
                self.tile_at(False, True)

    def parameters(self) -> None:
        kernel, lanes = self.p.kernel, self.p.lanes
        products, wides = len(self.found.products), len(self.wides)
        registers = 32 if lanes == 16 else 16
        across = -(-self.lane.extent // lanes)
        vectors_in_all = across * prod(loop.extent for loop in self.joined)
        walked = vectors_in_all * lanes if self.joined else self.lane.extent
        rows = tuple(c for c in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14) if c <= self.block.extent) or (1,)
        vectors = tuple(c for c in (1, 2, 3, 4) if (c - 1) * lanes < walked) or (1,)
        # Every accumulator, the wide operands of a step and one narrow value have registers.
        fitting = [(r, v) for r in rows for v in vectors if r * v * products + v * wides < registers]
        if self.p.chained:
            fitting = [(r, v) for r, v in fitting if r <= kernel.parameters[kernel.own["CHAIN_ROWS"]].default]

        def worth(shape: tuple[int, int]) -> float:
            """Products per operand that is loaded, which hides in part behind them, of a tile that a ragged last panel
            or block leaves to be of use."""
            r, v = shape
            used = walked / (-(-walked // (v * lanes)) * v * lanes)
            return sqrt(r * v / (r + v)) * used * self.block.extent / (-(-self.block.extent // r) * r)

        best = max(fitting, key=lambda shape: (worth(shape), -abs(shape[0] - 8)), default=(1, 1))
        accumulators = "TILE_ROWS * TILE_VECTORS" + (f" * {products}" if products > 1 else "")
        requires = (
            [f"{accumulators} + TILE_VECTORS{f' * {wides}' if wides > 1 else ''} < {registers}"] if fitting else []
        )
        if best[0] * best[1] > 1:  # with few of them every sum waits for the one before
            requires.append(f"TILE_ROWS * TILE_VECTORS >= {(best[0] * best[1] + 1) // 2}")
        if self.p.chained:
            requires.append("TILE_ROWS <= CHAIN_ROWS")
        kernel.tied([Parameter("TILE_ROWS", best[0], rows), Parameter("TILE_VECTORS", best[1], vectors)], requires)
        if self.cut:
            first = self.inner[0].extent if self.packed != "both" else self.length
            # Pieces of one length: a short one at the end costs as many calls as a long one.
            pieces = sorted({-(-self.length // c) for c in (256, 512, 1024, 2048) if c < self.length}, reverse=True)
            choices = tuple(dict.fromkeys(-(-first // count) for count in pieces))
            known = kernel.parameters.get("DEPTH")
            if known is None or set(known.choices) & set(choices):  # else the other nest's will do: any depth is right
                kernel.parameter("DEPTH", choices, choices[min(1, len(choices) - 1)])
        if not self.p.chained and self.packed not in ("block", "whole"):
            self.bands(-(-vectors_in_all // best[1]))

    def bands(self, panels: int) -> None:
        """How many tasks a panel is, so that threads have enough of them; each packs it, for rows enough to be worth it
        unless threads had nothing to do."""
        tasks = panels * prod(loop.extent for loop in self.outer if loop not in self.joined)
        threads, rows = self.p.kernel.plan.threads, self.block.extent
        wanted = ((b, 4 if rows >= 2 * b * _FEWEST else 1) for b in (1, 2, 4))
        least = next((b for b, turns in wanted if tasks * b >= turns * threads), 8)
        self.p.kernel.parameter("BANDS", (1, 2, 4, 8), least)

    def pieces(self) -> None:
        """The sum piece by piece: a panel holds DEPTH steps, and every tile's totals wait in memory."""
        p, nodes = self.p, [product.node for product in self.found.products]
        head, rest = self.inner[0], self.inner[1:]
        inside = "".join(f" * {in_brackets(self.end(loop))}" for loop in rest)
        self.panels(f"DEPTH{''.join(f' * ({self.real(loop.group)})' for loop in rest)}", f"DEPTH{inside}")
        totals = {node.name: p.names.fresh(f"{p.names.of(node)}_totals") for node in nodes}
        rows = f"(({self.real(self.block.group)}) + TILE_ROWS)"
        for name in totals.values():
            p.kernel.piece(f"{name}_all", "float", f"call->threads * {rows} * {WIDTH}", "sums so far, per thread")
            own = f"evo::omp_get_thread_num() * ({self.block.size} + TILE_ROWS) * {WIDTH}"
            p.w(f"float* {name} = {name}_all + {own};")
        tiles = "for (int64_t tile = first; tile < last; tile += TILE_ROWS)"
        with p.loops([f"for (int64_t depth = 0; depth < {self.end(head)}; depth += DEPTH)"]):
            p.w(f"const int64_t end = evo::min(depth + DEPTH, {self.end(head)}), before_it = depth{inside};")
            self.fill_panels(f"({self.flat()} - before_it)", "depth", "end")
            with p.loops([tiles]):
                for _, name in self.narrows.values():
                    p.w(f"const float* {name}_tile = {name} + {self.left(self.left_outer)};")
                heads = [f"for (int64_t k = before_it; k < end{inside}; ++k)"]
                with self.sums(heads, True, True, "(k - before_it)") as parts:
                    for node in nodes:
                        place = f"{totals[node.name]} + (tile - first + r) * {WIDTH} + u * evo::lanes"
                        part = f"{parts[node.name]}[r][u]"
                        p.w(f"evo::store({place}, depth ? evo::load({place}, evo::all) + {part} : {part}, evo::all);")
        with p.loops([tiles]):
            p.w(f"const int64_t {self.block.var} = evo::min(tile, {self.block.size} - TILE_ROWS);")
            self.epilogue({
                node.name: f"evo::load({totals[node.name]} + (tile - first + r) * {WIDTH} + u * evo::lanes, evo::all)"
                for node in nodes
            })  # fmt: skip

    def row_heads(self) -> list[str]:
        return ["#pragma GCC unroll 16", "for (int64_t r = 0; r < TILE_ROWS; ++r)"]

    def tile(self, packs_narrow: bool, packs_wide: bool) -> None:
        self.stand(packs_narrow)
        self.tile_at(packs_narrow, packs_wide)

    def stand(self, packs_narrow: bool) -> None:
        """Where a block of rows is. Where that is wanted, memory is fetched: the next block's, if it is read as it
        is, and what this one writes."""
        p = self.p
        p.w(f"const int64_t {self.block.var} = evo::min(tile, {self.last} - TILE_ROWS);")
        if p.schedule.prefetch == "none" or p.chained:
            return
        read = [] if packs_narrow or self.cut or len(self.inner) != 1 else self.next_read()
        for line, texts in ((self.line_of_sum, read), (self.line_of_panel, self.written())):
            if texts:
                with p.loops(["for (int64_t r = 0; r < TILE_ROWS; ++r)", line()]):
                    for text in texts:
                        p.w(text)

    def line_of_sum(self) -> str:
        inner = self.inner[0]
        return f"for (int64_t {inner.var} = 0; {inner.var} < {self.p.end(inner)}; {inner.var} += {_LINE})"

    def line_of_panel(self) -> str:
        stop = f"evo::min(col + {WIDTH[1:-1]}, {self.p.end(self.lane)})"
        return f"for (int64_t at = col; at < {stop}; at += {_LINE})"

    def next_read(self) -> list[str]:
        p, row, (fast,) = self.p, self.block.group[-1], self.inner[0].group[-1:]
        accesses = self.read_for_vectors(self.narrows, fast) or ()
        ctx = self.context([*self.outer, self.of_block(), *self.inner], False)
        lines = []
        for access in dict.fromkeys(accesses):
            if access.step(fast) == 1 and access.step(row):
                step = in_brackets(p.names.text(dict(access.terms or ())[row]) or "1")
                rows = f"evo::max(int64_t(TILE_ROWS), int64_t({_NEAR}) / {step})"
                where = f"{ctx.pointers[access.tensor]} + {ctx.offset(access)} + {rows} * {step}"
                lines.append(f"evo::prefetch({where});")
        return lines

    def written(self) -> list[str]:
        """A line that is not there is read before it is written, unless it is streamed."""
        p, ctx = self.p, self.context([*self.outer, self.of_block(), self.lane], True)
        if self.joined or self.packed == "whole":
            return []
        stores = [(t, p.written(t)) for t in self.one.row_stores if not p.streams(t)]
        return [
            f"evo::prefetch_to_write({p.pointer(tensor)} + {ctx.offset(access)});"
            for tensor, access in stores
            if access.step(self.lane.group[-1]) == 1
        ]

    def tile_at(self, packs_narrow: bool, packs_wide: bool) -> None:
        p = self.p
        if packs_narrow:
            for _, name in self.narrows.values():
                p.w(f"const float* {name}_tile = {name} + {self.left(self.left_outer)};")
        totals = {n.node.name: p.names.of(n.node) + "_tile" for n in self.found.products}
        heads, read = self.depth_heads(packs_narrow, self.seen()), self.read()
        for name in totals.values():
            p.w(f"evo::vec {name}[TILE_ROWS][TILE_VECTORS]{' = {}' if self.cut or read else ''};")
        with (
            p.loops(read),
            p.loops(heads[:1] if self.cut else []),
            self.sums(heads[1:] if self.cut else heads, packs_narrow, packs_wide) as parts,
        ):
            for name, total in totals.items():
                p.w(f"{total}[r][u] {'+' if self.cut else ''}= {parts[name]}[r][u];")
        self.epilogue({node: f"{name}[r][u]" for node, name in totals.items()})

    def read(self) -> list[str]:
        """The condition that a sum of a tile is read anywhere, by the largest values of what decides it; else none is
        taken."""
        p, end = self.p, self.p.end(self.lane)
        low = f"evo::min(col, evo::max({end} - evo::lanes, int64_t(0)))" if self.ragged else "col"
        high = f"(evo::min(col + {WIDTH[1:-1]}, {end}) - 1)"
        rows = (self.block.var, f"({self.block.var} + TILE_ROWS - 1)")
        corners = {self.block.group: rows, self.lane.group: (low, high)}
        loops = [*self.outer, self.block, self.lane]
        plain = {loop.group[0] for loop in loops if len(loop.group) == 1}
        conditions = []
        for index in () if self.joined else where_read(self.one):
            factors = {atom: factor for factor, atom in index.terms}
            if not factors.keys() <= plain:  # not linear, or in merged loops
                return []
            most = [corners.get(loop.group, 2 * (loop.var,))[factors.get(loop.group[0], 0) > 0] for loop in loops]
            at = [replace(loop, var=var) for loop, var in zip(loops, most, strict=True)]
            conditions.append(f"{affine_text(index, p.context(at, False, self.one))} >= 0")
        return [f"if ({' || '.join(conditions)})"] if conditions else []

    def seen(self) -> str:
        """Where the sums of a block of rows end, if a mask hides the rest from all of them."""
        p, chain = self.p, self.p.nest.chain
        beyond = chain.ends.get(self.inner[0].group[-1]) if chain and len(self.inner) == 1 else None
        if chain is None or beyond is None or self.block.group[-1] != chain.axes[-1]:
            return ""
        name, end = f"{self.inner[0].size}_here", p.end(self.inner[0])
        p.w(f"const int64_t {name} = evo::min({end}, {self.block.var} + TILE_ROWS{f' + {beyond}' if beyond else ''});")
        return name

    def depth_heads(self, flat: bool, seen: str = "") -> list[str]:
        if flat:
            heads = [f"for (int64_t k = 0; k < {self.steps_here}; ++k)"]
            var, size = "k", self.steps_here
        else:
            heads = self.reduction_heads(end=seen)
            var, size = (self.inner[0].var, seen or self.end(self.inner[0])) if self.inner else ("", "")
        if not self.cut:
            return heads
        inside = f"for (int64_t {var} = depth; {var} < evo::min(depth + DEPTH, {size}); ++{var})"
        return [f"for (int64_t depth = 0; depth < {size}; depth += DEPTH)", inside, *heads[1:]]

    @contextmanager
    def sums(self, heads: list[str], packs_narrow: bool, packs_wide: bool, place: str = "") -> Iterator[dict[str, str]]:
        """Accumulators by node, which `heads` run with; then what the caller prints, for each."""
        p = self.p
        parts = {n.node.name: p.names.of(n.node) + "_acc" for n in self.found.products}
        inline = any(p.schedule.sums.get(name) == "inline" for name in parts)
        with p.braces("") if inline else p.braces("evo::alone([&]", "});"):
            # Indexed by constants alone, once loops are unrolled: they live in registers.
            for name in parts.values():
                p.w(f"evo::vec {name}[TILE_ROWS][TILE_VECTORS] = {{}};")
            self.products(heads, parts, packs_narrow, packs_wide, place)
            with p.loops([*self.row_heads(), *self.vector_heads()]):
                yield parts

    def products(
        self, heads: list[str], names: dict[str, str], packs_narrow: bool, packs_wide: bool, place: str = ""
    ) -> None:
        p = self.p
        with p.loops(heads):
            given = () if packs_wide else self.skip()
            vectors = []
            for number in range(len(self.wides)):
                vectors.append(p.names.fresh(f"wide_{number}" if len(self.wides) > 1 else "wide"))
                p.w(f"evo::vec {vectors[-1]}[TILE_VECTORS];")
            with p.loops(self.vector_heads()):
                if packs_wide:
                    where = place or ("k" if packs_narrow else self.flat())
                    for name, (_, panel) in zip(vectors, self.wides.values(), strict=True):
                        at = f"{panel} + {where} * {WIDTH} + u * evo::lanes"
                        p.w(f"{name}[u] = evo::held(evo::load({at}, evo::all));")
                else:
                    self.position()
                    ctx = self.context([*self.outer, *self.inner, self.lane], True)
                    ctx.given += given
                    for name, value in zip(vectors, self.values(self.wides, ctx), strict=True):
                        p.w(f"{name}[u] = evo::held({value.text});")
            with p.loops(self.row_heads()):
                scalars = []
                if packs_narrow:
                    texts = [f"{name}_tile[k * TILE_ROWS + r]" for _, name in self.narrows.values()]
                else:
                    ctx = self.context([*self.outer, self.of_block(), *self.inner], False)
                    texts = [value.text for value in self.values(self.narrows, ctx)]
                for number, text in enumerate(texts):
                    scalars.append(p.names.fresh(f"narrow_{number}" if len(texts) > 1 else "narrow"))
                    p.w(f"const float {scalars[-1]} = {text};")
                with p.loops(self.vector_heads()):
                    for product in self.found.products:
                        a = scalars[list(self.narrows).index(product.narrow)]
                        b = vectors[list(self.wides).index(product.wide)]
                        p.w(f"{names[product.node.name]}[r][u] += {a} * {b}[u];")

    def skip(self) -> tuple[Guard, ...]:
        """Steps at which the one wide operand lies outside its tensor add nothing; what then holds."""
        expr, *others = self.wides
        if others or not isinstance(expr, Load) or expr.other != 0:
            return ()
        lane, ended = self.lane.group[-1], self.ending.values()
        guards = tuple(guard for guard in expr.guards if lane not in axes_of(guard.arg) and guard not in ended)
        if guards:
            ctx = self.context([*self.outer, *self.inner, self.lane], True)
            self.p.w(f"if (!({guards_text(guards, ctx)})) continue;")
        return guards

    def epilogue(self, values: dict[str, str], heads: Sequence[str] = ()) -> None:
        """What is done with the sums, whose texts `values` are, row by row of a tile or of what `heads` go through."""
        p = self.p
        outside = dict(p.known)
        heads = heads or [*self.row_heads(), *self.vector_heads()]
        with p.loops([head for head in heads if not head.startswith("#")]):
            self.position()
            for product in self.found.products:
                p.known_results(product.node, [values[product.node.name]], "f32", True)
            ctx = self.context([*self.outer, self.of_block(), self.lane], True)
            ctx.known = p.known
            for node in (*self.needed(node.body for node in self.one.row_maps), *self.one.row_maps):
                p.let(node, ctx)
            for tensor in self.one.row_stores:
                self.store(tensor, ctx)
        p.known.clear()
        p.known.update(outside)

    def store(self, tensor: str, ctx: Context) -> None:
        p = self.p
        value, access = p.known[tensor], p.written(tensor)
        text = value.text if value.vector else f"evo::broadcast({value.text})"
        p.put(tensor, f"{p.pointer(tensor)} + {ctx.offset(access)}", text, access, ctx)
