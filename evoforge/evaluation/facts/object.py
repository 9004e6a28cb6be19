"""Facts from the compiled object: what the compiler made of a kernel's memory accesses and loops.

`objdump` prints the instructions; control flow gives loops (see flow.py), and every memory operand
is weighed by ten to the depth of the loop it sits in. Only functions that `evo_run` reaches count,
bodies that OpenMP outlined among them, at the depth of their call.
"""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evoforge.errors import MissingToolError
from evoforge.evaluation.facts.flow import Loops, find_loops

__all__ = ["disassemble", "object_facts"]

_SECTION = re.compile(r"^Disassembly of section (\S+):")
_FUNCTION = re.compile(r"^([0-9a-f]+) <(.+)>:$")
_INSTRUCTION = re.compile(r"^\s+([0-9a-f]+):\s+(.*)$")
_RELOCATION = re.compile(r"^\s+[0-9a-f]+: R_X86_64_\w+\s+([^\s+-]+)([+-]0x[0-9a-f]+)?")
_TARGET = re.compile(r"\b([0-9a-f]+) <([^>+]+)(?:\+0x[0-9a-f]+)?>")
_MEMORY = re.compile(r"(?:(\w+) (PTR|BCST) )?(?:[a-z]s:)?\[([^\]]+)\]")
_REGISTER = re.compile(r"\b[a-z]\w*")
_BYTES = {"BYTE": 1, "WORD": 2, "DWORD": 4, "QWORD": 8, "XMMWORD": 16, "YMMWORD": 32, "ZMMWORD": 64}
_PREFIXES = ("bnd", "notrack", "lock", "rep", "repz", "repnz", "data16", "cs", "ds")
_NO_ACCESS = ("lea", "nop", "endbr64")
_ACCUMULATING = re.compile(r"^v?(fn?m(add|sub)|add|sub|max|min|mul)\d*p[sd]$|^vp?(add|max|min)[a-z]+$|^tdp")
_MAX_INSTRUCTIONS = 40_000
_TIMEOUT_S = 30.0
_DEEPEST = 15  # loops; ten to the depth of a chain of calls would be a number that nothing can print


@dataclass(frozen=True)
class Memory:
    """A memory operand: address registers, displacement, bytes, and whether it is written."""

    base: str
    index: str
    displacement: int
    nbytes: int
    store: bool
    broadcast: bool


@dataclass
class Instruction:
    address: int
    mnemonic: str
    operands: list[str]
    memory: Memory | None
    target: int | None = None
    refers: set[str] = field(default_factory=set)


@dataclass
class Function:
    name: str
    section: str
    instructions: list[Instruction] = field(default_factory=list)


def _split(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char in "[(") - (char in "])")
        if char == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [part.strip() for part in [*parts, text[start:]] if part.strip()]


def _memory(mnemonic: str, operands: list[str]) -> Memory | None:
    if mnemonic.startswith(_NO_ACCESS):
        return None
    for position, operand in enumerate(operands):
        found = _MEMORY.search(operand)
        if not found:
            continue
        size, kind, body = found.groups()
        base, index, displacement = "", "", 0
        for sign, term in re.findall(r"([+-]?)([^+-]+)", body):
            if term.startswith("0x") or term.isdigit():
                displacement += int(sign + term, 0)
            elif "*" in term or base:
                index = term
            else:
                base = term
        store = position == 0 and not mnemonic.startswith(("cmp", "test", "vucomis", "ucomis", "vcomis", "prefetch"))
        nbytes = 64 if mnemonic.startswith("tile") else _BYTES.get(size or "", 8)  # a row of a tile
        return Memory(base, index, displacement, nbytes, store, kind == "BCST")
    return None


def _instruction(address: int, text: str) -> Instruction | None:
    code, _, comment = text.partition("#")
    words = code.split(None, 1)
    while len(words) == 2 and words[0] in _PREFIXES:
        words = words[1].split(None, 1)
    if not words:
        return None
    operands = _split(re.sub(r"<[^>]*>", "", words[1])) if len(words) == 2 else []
    found = Instruction(address, words[0], operands, _memory(words[0], operands))
    named = _TARGET.search(code) or _TARGET.search(comment)
    if named:
        found.refers.add(named.group(2))
        if words[0].startswith("j"):
            found.target = int(named.group(1), 16)
    return found


def disassemble(path: Path) -> dict[str, Function] | None:
    """The functions of an object file by name; None if there is more code than anyone would follow.

    Raises:
        MissingToolError: binutils' objdump is not installed.
    """
    tool = shutil.which("objdump")
    if tool is None:
        raise MissingToolError("describing a kernel needs objdump, which is not installed; install binutils")
    command = [tool, "-d", "-r", "-w", "-M", "intel", "--no-show-raw-insn", str(path)]
    functions: dict[str, Function] = {}
    section, current, pending, count = "", None, [], 0
    for line in _lines(command):
        if found := _SECTION.match(line):
            section = found.group(1)
        elif found := _FUNCTION.match(line):
            current = functions.setdefault(found.group(2), Function(found.group(2), section))
        elif found := _RELOCATION.match(line):
            if current and current.instructions:
                pending.append((current.instructions[-1], found.group(1), int(found.group(2) or "0", 16)))
        elif (found := _INSTRUCTION.match(line)) and current:
            instruction = _instruction(int(found.group(1), 16), found.group(2))
            if instruction:
                current.instructions.append(instruction)
                count += 1
                if count > _MAX_INSTRUCTIONS:
                    return None
    _relocate(functions, pending)
    return functions


def _lines(command: list[str]) -> Iterator[str]:
    """What a program prints, line by line, ended with whoever reads it."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace"
    ) as process:
        late = threading.Timer(_TIMEOUT_S, process.kill)
        late.start()
        try:
            assert process.stdout is not None
            yield from process.stdout
        finally:
            late.cancel()
            process.kill()


def _relocate(functions: Mapping[str, Function], pending: Iterable[tuple[Instruction, str, int]]) -> None:
    """Names what a relocation points at: a symbol, or an offset into a section of code."""
    starts = {(f.section, f.instructions[0].address): f.name for f in functions.values() if f.instructions}
    for instruction, symbol, addend in pending:
        instruction.refers = {starts.get((symbol, addend + 4), symbol)}


@dataclass
class _Flow:
    """Basic blocks of one function with their loop depth; `loops` are sets of blocks."""

    blocks: list[list[Instruction]]
    depth: list[int]
    loops: Loops


def _blocks(function: Function) -> tuple[list[list[Instruction]], list[list[int]]]:
    targets = {i.target for i in function.instructions if i.target is not None}
    # Padding behind a jump is never run: as a block it would seem to lead into a loop.
    code = [i for i in function.instructions if i.mnemonic != "nop" or i.address in targets] or function.instructions
    leaders = {code[0].address} | targets
    leaders |= {after.address for before, after in itertools.pairwise(code) if before.mnemonic[0] == "j"}
    blocks: list[list[Instruction]] = []
    for instruction in code:
        if instruction.address in leaders or not blocks:
            blocks.append([])
        blocks[-1].append(instruction)
    start = {block[0].address: number for number, block in enumerate(blocks)}
    following: list[list[int]] = []
    for number, block in enumerate(blocks):
        last, nexts = block[-1], []
        if last.target is not None and last.target in start:
            nexts.append(start[last.target])
        if last.mnemonic not in ("jmp", "ret", "ud2", "hlt") and number + 1 < len(blocks):
            nexts.append(number + 1)
        following.append(nexts)
    return blocks, following


def _flow(function: Function) -> _Flow:
    blocks, following = _blocks(function)
    loops = find_loops(following)
    return _Flow(blocks, [sum(number in body for body in loops) for number in range(len(blocks))], loops)


def _base_depths(flows: Mapping[str, _Flow], entry: str) -> dict[str, int]:
    """Depth at which each function that `entry` reaches is called; recursion is cut."""
    depths, stack = {entry: 0}, [(entry, 0, frozenset([entry]))]
    while stack:
        name, base, above = stack.pop()
        for block, depth in zip(flows[name].blocks, flows[name].depth, strict=True):
            for callee in {ref for instruction in block for ref in instruction.refers}:
                below = min(base + depth, _DEEPEST)
                if callee in flows and callee not in above and below >= depths.get(callee, 0):
                    if depths.get(callee) == below:
                        continue
                    depths[callee] = below
                    stack.append((callee, below, above | {callee}))
    return depths


def _kind(instruction: Instruction, framed: bool) -> str | None:
    """What a memory operand is to the descriptor; None for spills, constants and address arithmetic."""
    memory, name = instruction.memory, instruction.mnemonic
    if memory is None or memory.base == "rip":
        return None
    if name.startswith("prefetch"):
        return "prefetch"
    if "gather" in name or "scatter" in name:
        return "gather"
    if memory.base in (("rsp", "rbp") if framed else ("rsp",)) and not memory.index:
        return None
    if name.startswith(("vmovnt", "movnt")) and memory.store:
        return "stream"
    return "contiguous" if memory.nbytes >= 16 and not memory.broadcast else "scalar"


def _writes(instruction: Instruction) -> str:
    """The register that an instruction writes, masks stripped; empty if it writes memory."""
    if not instruction.operands or instruction.mnemonic.startswith(("cmp", "test", "j", "prefetch")):
        return ""
    return re.sub(r"\{.*", "", instruction.operands[0]) if "[" not in instruction.operands[0] else ""


def _steps(code: list[Instruction]) -> dict[str, int | None]:
    """Bytes by which a loop advances each register that it writes; None where that is not a constant."""
    steps: dict[str, int | None] = {}
    for instruction in code:
        register = _writes(instruction)
        if not register:
            continue
        step: int | None = None
        if instruction.mnemonic in ("add", "sub") and re.fullmatch(r"0x[0-9a-f]+|\d+", instruction.operands[-1]):
            step = int(instruction.operands[-1], 0)
            step = step - (1 << 64) if step >> 63 else step
            step = -step if instruction.mnemonic == "sub" else step
        before = steps.get(register, 0)
        steps[register] = None if step is None or before is None else before + step
    return steps


def _unrolled(code: list[Instruction], framed: bool) -> int:
    """How many vectors one trip of an innermost loop takes of the streams it walks; 1 if not unrolled.

    A walk of s bytes per trip in vectors of w bytes is s / w vectors, if as many are really
    accessed. The least over all strides counts, so that a conversion between element sizes (two
    vectors out for one in) is not mistaken for unrolling.
    """
    steps = _steps(code)
    touched: Counter[int] = Counter()
    widths: dict[int, int] = {}
    for instruction in code:
        memory = instruction.memory
        if memory is None or _kind(instruction, framed) not in ("contiguous", "stream"):
            continue
        name, _, scale = memory.index.partition("*")
        moves = [steps.get(memory.base, 0), steps.get(name, 0)]
        if moves[0] is None or moves[1] is None:
            continue
        walk = abs(moves[0] + moves[1] * int(scale or "1"))
        touched[walk] += memory.nbytes
        widths[walk] = max(widths.get(walk, 0), memory.nbytes)
    counts = [walk // widths[walk] for walk, total in touched.items() if walk and total >= walk]
    return max(1, min(counts, default=1))


def _accumulators(code: list[Instruction]) -> int:
    """Most vector registers that one kind of operation carries from trip to trip."""
    written: set[str] = set()
    carried: Counter[str] = Counter()
    for instruction in code:
        register = _writes(instruction)
        if register[1:3] != "mm":
            continue
        name = register[1:]
        reads = {r[1:] for operand in instruction.operands[1:] for r in _REGISTER.findall(operand) if r[1:3] == "mm"}
        fused = instruction.mnemonic.startswith(("vfm", "vfnm", "tdp"))
        if _ACCUMULATING.match(instruction.mnemonic) and name not in written and (fused or name in reads):
            carried[re.sub(r"\d", "", instruction.mnemonic)] += 1
        written.add(name)
    return max(carried.values(), default=0)


def object_facts(path: Path, entry: str = "evo_run") -> dict[str, Any] | None:
    """Facts of one object file; None if it does not define `entry` or is too large to follow.

    Returns:
        ``bytes``: kind → Σ operand bytes · 10^depth (at most 15) over contiguous, scalar, gather and stream;
        ``stream_in_loops``, ``prefetch_in_loops``: instructions inside any loop; ``depth``: deepest
        loop; ``vectors_per_trip`` and ``accumulators``: the most of any innermost loop.
    """
    functions = disassemble(path)
    if functions is None or entry not in functions:
        return None
    flows = {name: _flow(function) for name, function in functions.items() if function.instructions}
    weighted: Counter[str] = Counter()
    in_loops: Counter[str] = Counter()
    deepest, unrolled, accumulators = 0, 1, 0
    for name, base in _base_depths(flows, entry).items():
        flow = flows[name]
        framed = any(i.mnemonic == "mov" and i.operands == ["rbp", "rsp"] for i in functions[name].instructions)
        for block, depth in zip(flow.blocks, flow.depth, strict=True):
            deepest = max(deepest, base + depth)
            for instruction in block:
                kind = _kind(instruction, framed)
                if kind and instruction.memory:
                    weighted[kind] += instruction.memory.nbytes * 10 ** min(base + depth, _DEEPEST)
                    in_loops[kind] += base + depth > 0
        for body in flow.loops:
            if any(other < body for other in flow.loops):
                continue
            code = [instruction for number in sorted(body) for instruction in flow.blocks[number]]
            unrolled = max(unrolled, _unrolled(code, framed))
            accumulators = max(accumulators, _accumulators(code))
    return {
        "bytes": {kind: weighted[kind] for kind in ("contiguous", "scalar", "gather", "stream")},
        "stream_in_loops": in_loops["stream"],
        "prefetch_in_loops": in_loops["prefetch"],
        "depth": deepest,
        "vectors_per_trip": unrolled,
        "accumulators": accumulators,
    }
