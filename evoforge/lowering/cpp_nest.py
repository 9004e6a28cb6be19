"""One loop nest as C++: the loops over rows, the sweeps in them, and what happens in between."""

from __future__ import annotations

from evoforge.lowering.cpp_body import in_brackets
from evoforge.lowering.cpp_chunks import print_chunks
from evoforge.lowering.cpp_columns import print_columns
from evoforge.lowering.cpp_expr import CTYPES
from evoforge.lowering.cpp_matrix import print_matrix
from evoforge.lowering.cpp_scan import print_scan
from evoforge.lowering.cpp_squares import Turned, enter_row, print_squares, turn_rows, turned_reads
from evoforge.lowering.cpp_sweep import SweepPrinter, powers
from evoforge.lowering.cpp_tiles import print_tiles
from evoforge.lowering.lanes import computed

__all__ = ["NestPrinter"]


class NestPrinter(SweepPrinter):
    """Prints one nest into a kernel."""

    def run(self) -> None:
        self._comment()
        if self.nest.scans:
            print_scan(self)
        elif self.nest.contraction is not None and self.vector:
            if not print_matrix(self):
                print_tiles(self)
        elif self.nest.columns and self.nest.reduces:
            print_columns(self)
        elif self.nest.chunked:
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
        if self.nest.scans:
            kind = "Running along a row"
        elif self.nest.contraction is not None and self.vector:
            kind = "Register blocks"
        elif self.nest.columns and self.nest.reduces:
            kind = "Columns, a vector at a time"
        elif self.nest.chunked:
            kind = "Rows in chunks"
        else:
            kind = "Rows" if self.rows else "Elements"
        self.w(f"// {kind}: {'; then '.join(passes)}.")

    def _print_rows(self) -> None:
        found = turned_reads(self)
        if found is not None:
            self._print_turned(found)
            return
        heads = self.row_heads(self.rows)
        if self.rows:
            nested = len(heads)
            if self.schedule.row_block and not self.chained:
                last = self.rows[-1]
                choices = powers(2, min(64, max(2, last.extent // 2)))
                self.kernel.parameter("ROW_BLOCK", choices, choices[min(len(choices) - 1, 2)])
                outer = f"{last.var}_block"
                top = f"evo::min({outer} + ROW_BLOCK, {last.size})"
                heads[-1:] = [
                    f"for (int64_t {outer} = 0; {outer} < {last.size}; {outer} += ROW_BLOCK)",
                    f"for (int64_t {last.var} = {outer}; {last.var} < {top}; ++{last.var})",
                ]
            self.pragma(nested)
        with self.loops(heads):
            self._passes()

    def _print_turned(self, found: Turned) -> None:
        """Blocks of rows that are turned before they are read."""
        if not self.nest.reduces:
            print_squares(self, found)
            return
        heads = [*self.row_heads([loop for loop in self.rows if loop != found.fast]), found.blocks]
        self.pragma(len(heads))
        with self.loops(heads):
            buffers = turn_rows(self, found)
            with self.loops([found.rows]):
                enter_row(self, found, buffers)
                self._passes()

    def _passes(self) -> None:
        """What is done for one row."""
        self._buffers()
        for number, one in enumerate(self.nest.passes):
            if number:
                self.w("")
            self.row_pass(one, number)

    def _buffers(self) -> None:
        for tensor in dict.fromkeys(t for one in self.nest.passes for t, how in one.stores if how == "row"):
            producer = self.domain.producer(tensor)
            assert producer is not None
            inner = [a for a in producer.axes if a not in self.nest.rows]
            ctype = CTYPES[computed(self.domain.tensors[tensor].dtype)]
            name = self.names.fresh(f"{self.names.of(producer)}_row")
            count = self.names.text(self.domain.numel(inner)) or "1"
            full = " * ".join(self.domain.shapes[a].factors[0] for a in inner) or "1"
            self.kernel.piece(
                f"{name}s",
                ctype,
                f"call->threads * ({full})",
                f"one row of {producer.origin or producer.name} per thread",
            )
            self.w(f"{ctype}* {name} = {name}s + evo::omp_get_thread_num() * {in_brackets(count)};")
            self.row_buffers[tensor] = name
