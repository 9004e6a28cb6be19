"""Contractions in register blocks: TILE_ROWS rows by TILE_VECTORS vectors of accumulators.

Blocks at a ragged end start earlier instead of being cut, so that every block is whole: rows that two
blocks share are computed twice, to the same bits. A panel takes its vectors from several rows of the wide operand
where the narrow one is the same for them all. Long sums are cut into pieces of DEPTH, which are added up in order, so
that they stay accurate. Accumulators are summed in a function of their own: among other variables compilers spill them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from evoforge.lowering.cpp_body import in_brackets
from evoforge.lowering.cpp_expr import Context, Value, can_vectorise, guards_text, print_expr
from evoforge.lowering.cpp_layout import Loop
from evoforge.lowering.domain import Node
from evoforge.lowering.index import names as axes_of
from evoforge.lowering.ir import Expr, Guard, Load, loads

if TYPE_CHECKING:
    from evoforge.lowering.cpp_sweep import SweepPrinter

__all__ = ["print_tiles"]

_LONG = 512
"""Sums longer than this are cut."""
_WIDTH = "(TILE_VECTORS * evo::lanes)"


def print_tiles(printer: SweepPrinter) -> None:
    _Tiles(printer).run()


class _Tiles:
    def __init__(self, printer: SweepPrinter) -> None:
        assert printer.nest.contraction is not None
        self.p, self.found = printer, printer.nest.contraction
        self.one = printer.nest.passes[0]
        self.lane = replace(printer.lane_loop(printer.lane_group), var="at")
        walks = [loop for loop in printer.rows if set(loop.group) <= self.found.block - set(printer.chained[:-1])]
        self.block = max(walks, key=lambda loop: loop.extent)
        self.outer = [loop for loop in printer.rows if loop is not self.block]
        self.inner = printer.inner_loops(self.one)
        self.length = printer.domain.numel(self.found.products[0].node.reduction).first
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
        if self.packed == "whole" and any(set(o.group) & axes_of(expr) for o in self.outer for expr in self.wides):
            self.packed = "pack"  # there are many wide operands, and each is used for its own rows
        if self.packed not in ("block", "whole") and not printer.chained:
            self.joined = [o for o in self.outer if not any(set(o.group) & axes_of(expr) for expr in self.narrows)]

    def run(self) -> None:
        p = self.p
        self.parameters()
        self.steps = in_brackets(p.names.text(p.domain.numel(self.found.products[0].node.reduction)) or "1")
        if self.packed == "whole":
            self.run_whole()
            return
        packs_narrow, packs_wide = self.packed in ("both", "deep"), self.packed != "block"
        if packs_narrow:
            self.pack_narrow()
        heads = p.row_heads([loop for loop in self.outer if loop not in self.joined])
        if self.joined:
            self.across, self.vectors = p.names.fresh("across"), p.names.fresh("vectors")
            across = f"const int64_t {self.across} = ({self.lane.size} + evo::lanes - 1) / evo::lanes"
            p.w(f"{across}, {self.vectors} = {' * '.join(loop.size for loop in self.joined)} * {self.across};")
            heads.append(f"for (int64_t panel = 0; panel < {self.vectors}; panel += TILE_VECTORS)")
        else:
            heads.append(f"for (int64_t col = 0; col < {p.end(self.lane)}; col += {_WIDTH[1:-1]})")
        if p.chained:
            with p.loops(heads):
                if packs_wide:
                    self.pack_wide()
                with p.loops([f"for (int64_t tile = {self.first}; tile < {self.last}; tile += TILE_ROWS)"]):
                    self.tile(packs_narrow, packs_wide)
            return
        tiles = f"(({self.block.size} + TILE_ROWS - 1) / TILE_ROWS)"
        if packs_wide:
            heads.append("for (int64_t band = 0; band < BANDS; ++band)")
            p.pragma(len(heads))
            with p.loops(heads):
                if self.packed != "deep":
                    self.pack_wide()
                p.w(f"const int64_t first = {tiles} * band / BANDS * TILE_ROWS;")
                p.w(f"const int64_t last = evo::min({tiles} * (band + 1) / BANDS * TILE_ROWS, {self.block.size});")
                if self.packed == "deep":
                    self.pieces()
                    return
                with p.loops(["for (int64_t tile = first; tile < last; tile += TILE_ROWS)"]):
                    self.tile(packs_narrow, packs_wide)
        else:
            heads.append(f"for (int64_t tile = 0; tile < {self.block.size}; tile += TILE_ROWS)")
            p.pragma(len(heads))
            with p.loops(heads):
                self.tile(packs_narrow, packs_wide)

    def run_whole(self) -> None:
        """All panels first, for all threads; then block after block of rows, each with every panel."""
        p = self.p
        real = f"({self.real(self.lane.group)} + {_WIDTH} - 1) / {_WIDTH} * {_WIDTH}"
        reduction = self.real(self.found.products[0].node.reduction)
        panels = f"for (int64_t col = 0; col < {p.end(self.lane)}; col += {_WIDTH[1:-1]})"
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
        p.pragma(len(heads))
        with p.loops([*heads, panels]):
            for _, name in self.wides.values():
                p.w(f"const float* {name} = {name}s + col * {self.steps};")
            self.tile(False, True)

    def parameters(self) -> None:
        kernel, lanes = self.p.kernel, self.p.lanes
        products, wides = len(self.found.products), len(self.wides)
        registers = 32 if lanes == 16 else 16
        walked = self.lane.extent if not self.joined else _LONG * lanes
        rows = tuple(c for c in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14) if c <= self.block.extent) or (1,)
        vectors = tuple(c for c in (1, 2, 3, 4) if (c - 1) * lanes < walked) or (1,)
        # Every accumulator, the wide operands of a step and one narrow value have registers.
        fitting = [(r, v) for r in rows for v in vectors if r * v * products + v * wides < registers]
        if self.p.chained:
            fitting = [(r, v) for r, v in fitting if r <= kernel.parameters["CHAIN_ROWS"].default]

        def worth(shape: tuple[int, int]) -> float:
            """Products per operand that is loaded; those of a ragged last panel or block do not count."""
            r, v = shape
            used = walked / (-(-walked // (v * lanes)) * v * lanes)
            return r * v / (r + v) * used * self.block.extent / (-(-self.block.extent // r) * r)

        best = max(fitting, key=lambda shape: (worth(shape), -abs(shape[0] - 8)), default=(1, 1))
        kernel.parameter("TILE_ROWS", rows, best[0])
        kernel.parameter("TILE_VECTORS", vectors, best[1])
        accumulators = "TILE_ROWS * TILE_VECTORS" + (f" * {products}" if products > 1 else "")
        kernel.require(f"{accumulators} + TILE_VECTORS{f' * {wides}' if wides > 1 else ''} < {registers}")
        if best[0] * best[1] > 1:  # with few of them every sum waits for the one before
            kernel.require(f"TILE_ROWS * TILE_VECTORS >= {(best[0] * best[1] + 1) // 2}")
        if self.cut:
            first = self.inner[0].extent if self.packed != "both" else self.length
            # Pieces of one length: a short one at the end costs as many calls as a long one.
            pieces = sorted({-(-self.length // c) for c in (256, 512, 1024, 2048) if c < self.length}, reverse=True)
            choices = tuple(dict.fromkeys(-(-first // count) for count in pieces))
            kernel.parameter("DEPTH", choices, choices[min(1, len(choices) - 1)])
        if self.p.chained:
            kernel.require("TILE_ROWS <= CHAIN_ROWS")
        elif self.packed not in ("block", "whole"):
            across = -(-self.lane.extent // lanes)
            tasks = -(-across * prod(loop.extent for loop in self.joined) // best[1])
            tasks *= prod(loop.extent for loop in self.outer if loop not in self.joined)
            least = next((b for b in (1, 2, 4) if tasks * b >= 4 * self.p.kernel.plan.threads), 8)
            kernel.parameter("BANDS", (1, 2, 4, 8), least)

    @property
    def cut(self) -> bool:
        return self.length > _LONG and bool(self.inner)

    # contexts

    def context(self, loops: Sequence[Loop], vector: bool) -> Context:
        ctx = self.p.context(loops, vector, self.one)
        ctx.vector, ctx.lane, ctx.lane_text = vector, self.lane.group[-1], self.lane.var
        ctx.known = dict(self.p.known)
        return ctx

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
        wanted = {load.tensor for expr in exprs for load in loads(expr)}
        found: list[Node] = []
        for node in reversed([*self.one.heads, *self.one.maps]):
            if wanted & set(node.outputs):
                found.insert(0, node)
                wanted |= {access.tensor for access in node.reads()}
        return found

    # packing

    def reduction_heads(self, start: str = "0", end: str = "", last_step: str = "") -> list[str]:
        """The loops over the reduction: the first one from `start` to `end`, the last one in steps of `last_step`."""
        heads = []
        for loop in self.inner:
            first = loop is self.inner[0]
            begin, stop = (start, end or self.p.end(loop)) if first else ("0", self.p.end(loop))
            step = f"{loop.var} += {last_step}" if last_step and loop is self.inner[-1] else f"++{loop.var}"
            heads.append(f"for (int64_t {loop.var} = {begin}; {loop.var} < {stop}; {step})")
        return heads

    def flat(self) -> str:
        """The position in the reduction, from the loops over it."""
        vars_of = {loop.group: loop.var for loop in self.inner}
        return in_brackets(self.p.offset(self.p.position(self.found.products[0].node), vars_of))

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
            for _, name in self.narrows.values():
                p.w(f"float* {name}_tile = {name} + {self.left(outer)};")
            with p.loops([*self.reduction_heads(), "for (int64_t r = 0; r < TILE_ROWS; ++r)"]):
                ctx = self.context([*outer, self.of_block(), *self.inner], False)
                for (_, name), value in zip(self.narrows.values(), self.values(self.narrows, ctx), strict=True):
                    p.w(f"{name}_tile[{self.flat()} * TILE_ROWS + r] = {value.text};")
        p.w("")
        self.left_outer = outer

    def left(self, outer: Sequence[Loop]) -> str:
        """Where the packed rows of a block start."""
        text = ""
        for loop in outer:
            text = f"{loop.var}" if not text else f"({text} * {loop.size} + {loop.var})"
        blocks = f"(({self.block.size} + TILE_ROWS - 1) / TILE_ROWS)"
        return f"({text} * {blocks} + tile / TILE_ROWS) * TILE_ROWS * {self.steps}" if text else f"tile * {self.steps}"

    def pack_wide(self) -> None:
        self.panels(self.real(self.found.products[0].node.reduction), self.steps)
        self.fill_panels(self.flat())

    def panels(self, real: str, steps: str) -> None:
        p = self.p
        for expr, (node, _) in self.wides.items():
            name = p.names.fresh(f"{p.names.of(node)}_panel")
            what = "a panel of columns per thread"
            p.kernel.piece(f"{name}s", "float", f"call->threads * {real} * {_WIDTH}", what)
            self.wides[expr] = (node, name)
            p.w(f"float* {name} = {name}s + evo::omp_get_thread_num() * {steps} * {_WIDTH};")

    def fill_panels(self, where: str, start: str = "0", end: str = "") -> None:
        p = self.p
        if self.read_along_the_sum():
            self.transpose_into_panels(where, start, end)
            return
        with p.loops([*self.reduction_heads(start, end), *self.vector_heads()]):
            self.position()
            ctx = self.context([*self.outer, *self.inner, self.lane], True)
            for (_, name), value in zip(self.wides.values(), self.values(self.wides, ctx), strict=True):
                p.w(f"evo::store({name} + {where} * {_WIDTH} + u * evo::lanes, {value.text}, evo::all);")

    def read_along_the_sum(self) -> bool:
        """Whether memory of the wide operands runs along the sum and not along the lanes."""
        fast, lane, found = self.inner[-1].group[-1] if self.inner else "", self.lane.group[-1], False
        if not fast or self.p.position(self.found.products[0].node).step(fast) != 1:
            return False
        maps = self.needed(self.wides)
        inside = {tensor for node in maps for tensor in node.outputs}
        read = [*((expr, node) for expr, (node, _) in self.wides.items()), *((node.body, node) for node in maps)]
        for expr, node in read:
            if not can_vectorise(expr, fast, node, self.p.domain.tensors):
                return False
            for load in loads(expr):
                if load.tensor in inside:
                    continue
                access = node.accesses[load]
                if load.guards or access.terms is None or self.one.reads.get(load.tensor, "memory") != "memory":
                    return False
                along, across = access.step(fast) or 0, access.step(lane) or 0
                if along not in (0, 1) or across == 1:
                    return False
                found = found or along == 1
        return found

    def transpose_into_panels(self, where: str, start: str, end: str) -> None:
        """Panels from memory that runs along the sum: squares of vectors, instead of gathers."""
        p, fast = self.p, self.inner[-1]
        stop = end if end and len(self.inner) == 1 else p.end(fast)
        with p.loops([*self.reduction_heads(start, end, "evo::lanes"), *self.vector_heads()]):
            self.position()
            ctx = self.context([*self.outer, *self.inner, replace(self.lane, var="(at + i)")], True)
            ctx.lane, ctx.lane_text = fast.group[-1], fast.var
            for expr, (node, name) in self.wides.items():
                place = f"{name} + {where} * {_WIDTH} + u * evo::lanes"
                square = f"{place}, {_WIDTH}, evo::part({stop} - {fast.var}, false), n"
                with p.braces(f"evo::transpose({square}, [&](int64_t i, int64_t n)", "});"):
                    p.w(f"return {self.values({expr: (node, name)}, ctx)[0].text};")

    def pieces(self) -> None:
        """The sum piece by piece: a panel holds DEPTH steps, and every tile's totals wait in memory."""
        p, nodes = self.p, [product.node for product in self.found.products]
        head, rest = self.inner[0], self.inner[1:]
        inside = "".join(f" * {in_brackets(loop.size)}" for loop in rest)
        self.panels(f"DEPTH{''.join(f' * ({self.real(loop.group)})' for loop in rest)}", f"DEPTH{inside}")
        totals = {node.name: p.names.fresh(f"{p.names.of(node)}_totals") for node in nodes}
        rows = f"(({self.real(self.block.group)}) + TILE_ROWS)"
        for name in totals.values():
            p.kernel.piece(f"{name}_all", "float", f"call->threads * {rows} * {_WIDTH}", "sums so far, per thread")
            own = f"evo::omp_get_thread_num() * ({self.block.size} + TILE_ROWS) * {_WIDTH}"
            p.w(f"float* {name} = {name}_all + {own};")
        tiles = "for (int64_t tile = first; tile < last; tile += TILE_ROWS)"
        with p.loops([f"for (int64_t depth = 0; depth < {head.size}; depth += DEPTH)"]):
            p.w(f"const int64_t end = evo::min(depth + DEPTH, {head.size}), before_it = depth{inside};")
            self.fill_panels(f"({self.flat()} - before_it)", "depth", "end")
            with p.loops([tiles]):
                for _, name in self.narrows.values():
                    p.w(f"const float* {name}_tile = {name} + {self.left(self.left_outer)};")
                heads = [f"for (int64_t k = before_it; k < end{inside}; ++k)"]
                with self.sums(heads, True, True, "(k - before_it)") as parts:
                    for node in nodes:
                        place = f"{totals[node.name]} + (tile - first + r) * {_WIDTH} + u * evo::lanes"
                        part = f"{parts[node.name]}[r][u]"
                        p.w(f"evo::store({place}, depth ? evo::load({place}, evo::all) + {part} : {part}, evo::all);")
        with p.loops([tiles]):
            p.w(f"const int64_t {self.block.var} = evo::min(tile, {self.block.size} - TILE_ROWS);")
            self.epilogue({
                node.name: f"evo::load({totals[node.name]} + (tile - first + r) * {_WIDTH} + u * evo::lanes, evo::all)"
                for node in nodes
            })  # fmt: skip

    # blocks

    def vector_heads(self) -> list[str]:
        return ["#pragma GCC unroll 8", "for (int64_t u = 0; u < TILE_VECTORS; ++u)"]

    def row_heads(self) -> list[str]:
        return ["#pragma GCC unroll 16", "for (int64_t r = 0; r < TILE_ROWS; ++r)"]

    def position(self) -> None:
        """Where vector u of a panel stands, and how many of its lanes take part."""
        end = self.p.end(self.lane)
        if self.joined:
            self.p.w(f"const int64_t vector = evo::min(panel + u, {self.vectors} - 1);")
            found, rest = [f"at = vector % {self.across} * evo::lanes"], f"vector / {self.across}"
            for loop in reversed(self.joined[1:]):
                found.append(f"{loop.var} = {rest} % {loop.size}")
                rest = f"{rest} / {loop.size}"
            found.append(f"{self.joined[0].var} = {rest}")
            whole = self.p.kernel.flag("whole", f"{self.lane.size} % evo::lanes == 0")
            self.p.w(f"const int64_t {', '.join(found)}, n = evo::part({end} - at, {whole});")
            return
        ragged = end != self.lane.size
        whole = "false" if ragged else self.p.kernel.flag("whole", f"{self.lane.size} % {_WIDTH} == 0")
        self.p.w(f"const int64_t at = col + u * evo::lanes, n = evo::part({end} - at, {whole});")

    def tile(self, packs_narrow: bool, packs_wide: bool) -> None:
        p = self.p
        p.w(f"const int64_t {self.block.var} = evo::min(tile, {self.last} - TILE_ROWS);")
        if packs_narrow:
            for _, name in self.narrows.values():
                p.w(f"const float* {name}_tile = {name} + {self.left(self.left_outer)};")
        totals = {n.node.name: p.names.of(n.node) + "_tile" for n in self.found.products}
        heads = self.depth_heads(packs_narrow)
        for name in totals.values():
            p.w(f"evo::vec {name}[TILE_ROWS][TILE_VECTORS]{' = {}' if self.cut else ''};")
        with (
            p.loops(heads[:1] if self.cut else []),
            self.sums(heads[1:] if self.cut else heads, packs_narrow, packs_wide) as parts,
        ):
            for name, total in totals.items():
                p.w(f"{total}[r][u] {'+' if self.cut else ''}= {parts[name]}[r][u];")
        self.epilogue({node: f"{name}[r][u]" for node, name in totals.items()})

    def depth_heads(self, flat: bool) -> list[str]:
        if flat:
            heads = [f"for (int64_t k = 0; k < {self.steps}; ++k)"]
            var, size = "k", self.steps
        else:
            heads = self.reduction_heads()
            var, size = (self.inner[0].var, self.p.end(self.inner[0])) if self.inner else ("", "")
        if not self.cut:
            return heads
        inside = f"for (int64_t {var} = depth; {var} < evo::min(depth + DEPTH, {size}); ++{var})"
        return [f"for (int64_t depth = 0; depth < {size}; depth += DEPTH)", inside, *heads[1:]]

    @contextmanager
    def sums(self, heads: list[str], packs_narrow: bool, packs_wide: bool, place: str = "") -> Iterator[dict[str, str]]:
        """Accumulators by node, all registers theirs while `heads` run; then what the caller prints, for each."""
        p = self.p
        parts = {n.node.name: p.names.of(n.node) + "_acc" for n in self.found.products}
        with p.braces("evo::alone([&]", "});"):
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
                        at = f"{panel} + {where} * {_WIDTH} + u * evo::lanes"
                        p.w(f"{name}[u] = evo::held(evo::load({at}, evo::all));")
                else:
                    self.position()
                    ctx = self.context([*self.outer, *self.inner, self.lane], True)
                    ctx.given = given
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
        guards = tuple(guard for guard in expr.guards if self.lane.group[-1] not in axes_of(guard.arg))
        if guards:
            ctx = self.context([*self.outer, *self.inner, self.lane], True)
            self.p.w(f"if (!({guards_text(guards, ctx)})) continue;")
        return guards

    def epilogue(self, values: dict[str, str]) -> None:
        """What is done with the sums, whose texts `values` are, row by row of a tile."""
        p = self.p
        outside = dict(p.known)
        with p.loops([head for head in (*self.row_heads(), *self.vector_heads()) if not head.startswith("#")]):
            self.position()
            for product in self.found.products:
                p.known_results(product.node, [values[product.node.name]], "f32", True)
            ctx = self.context([*self.outer, self.of_block(), self.lane], True)
            ctx.known = p.known
            for node in self.one.row_maps:
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
