"""Chains as C++: one parallel loop over blocks of rows, with all nests of the chain inside it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from evoforge.lowering.cpp_body import in_brackets
from evoforge.lowering.cpp_expr import CTYPES
from evoforge.lowering.cpp_nest import NestPrinter
from evoforge.lowering.cpp_sweep import powers
from evoforge.lowering.domain import Size
from evoforge.lowering.lanes import computed

__all__ = ["print_chain"]

_BLOCK_BYTES = 512 << 10
"""What is handed on or read again at the default number of rows: it stays in a second-level cache."""


def print_chain(printers: Sequence[NestPrinter]) -> None:
    """The nests of one chain. The last block of rows starts earlier instead of being cut: every block is whole."""
    head = printers[0]
    chain, kernel = head.nest.chain, head.kernel
    assert chain is not None
    for tensor, taken in chain.reuse.items():
        kernel.pointers[tensor] = head.pointer(taken)
    *outer, block = head.rows[: len(chain.axes)]
    a_row = sum(4 * _inner(head, tensor).first for tensor in chain.private - set(chain.reuse)) + _read_again(printers)
    fewest = 8 if block.extent >= 8 and 8 * a_row <= _BLOCK_BYTES else 1
    choices = powers(fewest, min(512, 2 * block.extent - 1))  # the last one takes all rows
    many = math.prod(loop.extent for loop in outer)
    turns = {c: -(-block.extent // c) for c in choices}
    fit = [c for c in choices if c * a_row <= _BLOCK_BYTES and many * turns[c] >= 2 * kernel.plan.threads]
    # Fewest rows that two turns share, then the longest turns.
    best = min(fit, key=lambda c: (turns[c] * min(c, block.extent), -c), default=choices[0])
    kernel.parameter("CHAIN_ROWS", choices, best)
    heads = [f"for (int64_t {loop.var} = 0; {loop.var} < {loop.size}; ++{loop.var})" for loop in outer]
    blocks = f"{block.var}_block"
    heads.append(f"for (int64_t {blocks} = 0; {blocks} < {block.size}; {blocks} += CHAIN_ROWS)")
    head.w(f"// {len(printers)} nests in turns on a block of rows.")
    head.threads_share(len(heads))
    with head.loops(heads):
        turn = f"turn = evo::min(int64_t(CHAIN_ROWS), {block.size})"
        head.w(f"const int64_t {turn}, lower = evo::min({blocks}, {block.size} - turn), upper = lower + turn;")
        for axis, beyond in chain.ends.items():
            size, more = head.ends[axis].removesuffix("_seen"), f" + {beyond}" if beyond else ""
            head.w(f"const int64_t {head.ends[axis]} = evo::min({size}, upper{more});  // what the mask lets through")
        for tensor in sorted(chain.private - set(chain.reuse)):
            _buffer(head, tensor)
        for number, printer in enumerate(printers):
            if number:
                head.w("")
            printer.depth = head.depth
            printer.run()


def _read_again(printers: Sequence[NestPrinter]) -> int:
    """Bytes of a row that more than one of the nests reads from memory."""
    seen: dict[str, set[int]] = {}
    sizes: dict[str, int] = {}
    for number, p in enumerate(printers):
        for node in (node for one in p.nest.passes for node in one.nodes):
            for access in node.reads():
                if p.chained[-1] in access.axes and p.domain.producer(access.tensor) is None:
                    seen.setdefault(access.tensor, set()).add(number)
                    sizes[access.tensor] = 4 * p.domain.numel(sorted(access.axes - set(p.chained))).first
    return sum(sizes[tensor] for tensor, numbers in seen.items() if len(numbers) > 1)


def _inner(p: NestPrinter, tensor: str) -> Size:
    """How much of a private tensor belongs to one row."""
    producer = p.domain.producer(tensor)
    assert producer is not None
    return p.domain.numel(producer.axes[len(p.chained) :])


def _buffer(p: NestPrinter, tensor: str) -> None:
    """One block of a private tensor, for every thread."""
    producer = p.domain.producer(tensor)
    assert producer is not None
    inner = producer.axes[len(p.chained) :]
    ctype = CTYPES[computed(p.domain.tensors[tensor].dtype)]
    name = p.pointer(tensor)
    full = "".join(f" * {p.domain.shapes[a].factors[0]}" for a in inner)
    what = f"a block of {producer.origin or producer.name} per thread"
    p.kernel.piece(f"{name}s", ctype, f"call->threads * CHAIN_ROWS{full}", what)
    count = p.names.text(_inner(p, tensor))
    times = f" * {in_brackets(count)}" if count else ""
    p.w(f"{ctype}* {name} = {name}s + evo::omp_get_thread_num() * CHAIN_ROWS{times};")
