"""What was printed, read back: the loops of a kernel, and which memory they touch.

Printers write regular text: a loop per line, bodies indented, addresses as a pointer plus an integer
expression. Reading that once, here, tells what the text does, whichever printer wrote it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

__all__ = ["Access", "Let", "Loop", "arguments", "parsed", "read_body"]

_LOOP = re.compile(r"for \(int64_t (\w+) = (.+); \w+ (?:<|>=) (.+); (.+)\)(?: \{)?$")
_LET = re.compile(r"(const int64_t|(?:const )?(?:float|double|u?int\d+_t|evo::bf16)\*) (\w+) = (.+);$")
_CALL = re.compile(
    r"evo::(load|load_i32|load_quotients|gather|gather_i32|lookup|store|store_beside|stream|stream_beside|prefetch"
    r"|prefetch_to_write)"
    r"\((\w+)\b(?: \+ )?"
)
_SUBSCRIPT = re.compile(r"(?<![\w:])(\w+)\[")
_TILE = re.compile(r"(?:^evo::vec )?\b(\w+_tile)\[(?:r|TILE_ROWS\w*)\]\[(?:u|TILE_VECTORS\w*)\](?: = )?")
_VECTOR = re.compile(r"evo::(?!min\b|max\b)\w+\(|^(?:const )?evo::vec\b")
_GATHERED = re.compile(r"evo::(transpose|put_\w+)\((\w+)(?: \+ )?(.*), \[&\]\(int64_t i, int64_t n\) \{$")
_PACKED = re.compile(r"evo::(put_step|put_right)\((\w+)\b")
_MATRIX = re.compile(r"evo::multiply\(")
_PARTS = re.compile(r"k \* (\d+) ")
_COMPARED = re.compile(r" (?:\?|:|[<>=!]=|[<>]|&&|\|\|) ")
_TILE_INDEX = "r * TILE_VECTORS + u"  # into a tile of vectors on the stack
_SOMEWHERE = "somewhere"  # a name that nothing has: an address that is not known
_TILES = 4  # sums that the matrix unit adds to at a time
_COLLAPSE = re.compile(r"collapse\((\d+)\)")


@dataclass(frozen=True)
class Access:
    """One access per trip: `kind` is load, store, stream or prefetch; `wide`: `vectors` of elements, `apart` so far."""

    pointer: str
    index: str
    kind: str
    wide: bool
    apart: str = ""
    condition: str = ""
    vectors: int = 1


@dataclass(frozen=True)
class Let:
    """A named integer, or a name for a place in memory (`pointer`)."""

    name: str
    value: str
    pointer: bool = False


@dataclass
class Loop:
    """``for (var = start; var < end; var += step)``.

    `unrolled` by a pragma; `collapsed` loops are one to OpenMP; `pushes` on accumulators, others `masked`; `vector`:
    its own statements call for vectors, for which the facts take every function of ours. `called`: it is inside a
    function of ours, where the facts do not see how often it trips.
    """

    var: str
    start: str
    end: str
    step: str
    unrolled: bool = False
    collapsed: int = 1
    vector: bool = False
    pushes: int = 0
    masked: int = 0
    called: bool = False
    body: list[Loop | Access | Let] = field(default_factory=list)

    def loops(self) -> Iterator[Loop]:
        return (item for item in self.body if isinstance(item, Loop))


def read_body(lines: Sequence[str]) -> Loop:
    """A loop of one trip that stands for the whole function."""
    root = Loop("", "0", "1", "1")
    open_loops: list[tuple[int, Loop]] = [(-1, root)]
    unrolled, collapsed = False, 1
    for line in lines:
        text = line.partition("//")[0].strip(" ")
        if not text:
            continue
        if text.startswith("#"):
            unrolled = unrolled or "unroll" in text
            found = _COLLAPSE.search(text)
            collapsed = int(found.group(1)) if found else collapsed
            continue
        depth = len(line) - len(line.lstrip(" "))
        while depth <= open_loops[-1][0]:
            open_loops.pop()
        head, square = _head(text), _GATHERED.match(text)
        loop = (
            Loop(*head, unrolled, collapsed) if head is not None else _gathered(square) if square is not None else None
        )
        if loop is not None:
            unrolled, collapsed = False, 1
            open_loops[-1][1].vector |= square is not None
            open_loops[-1][1].body.append(loop)
            open_loops.append((depth, loop))
        else:
            open_loops[-1][1].body += _statement(text)
            if ".push(" in text:
                open_loops[-1][1].masked += text.endswith(", n);")
                open_loops[-1][1].pushes += not text.endswith(", n);")
            if _MATRIX.match(text):
                open_loops[-1][1].pushes += _TILES
            open_loops[-1][1].vector |= _VECTOR.search(text) is not None
    return root


@lru_cache(1 << 14)
def _head(text: str) -> tuple[str, str, str, str] | None:
    found = _LOOP.match(text)
    if found is None:
        return None
    var, start, end, advance = found.groups()
    if advance.startswith("--"):  # the same trips, walked backwards
        return var, end, f"{start} + 1", "1"
    return var, start, end, "1" if advance.startswith("++") else advance.partition(" += ")[2]


@lru_cache(1 << 14)
def _statement(text: str) -> tuple[Access | Let | Loop, ...]:
    found = _LET.match(text)
    if found and found.group(1) != "const int64_t":
        return (Let(found.group(2), found.group(3), True),)
    if found:
        named = (part.partition(" = ") for part in _split(f"{found.group(2)} = {found.group(3)}"))
        return (*_accesses(found.group(3)), *(Let(name, value) for name, _, value in named))
    return tuple(_accesses(text))


def _gathered(found: re.Match[str]) -> Loop:
    """Vectors that a lambda loads one by one, as it is called; where they are stored together."""
    name, pointer, given = found.groups()
    index, *rest = _split(given)
    if name == "transpose":  # a square of vectors
        stored = [Access(pointer, f"{index or '0'} + i * {rest[0]}", "store", True)]
        return Loop("i", "0", "evo::lanes", "1", unrolled=True, called=True, body=[*stored])
    if name == "put_right":
        return Loop(
            "i", "0", "evo::lanes", "1", unrolled=True, called=True, body=[Access(pointer, _SOMEWHERE, "store", True)]
        )
    parts, rows = int(rest[0]), rest[1]
    step, times = ("evo::lanes", "1") if name == "put_left" else ("1", "evo::lanes")
    places = [f"{index} + {part} * {rows} * evo::deep + i * {times}" for part in range(parts)]
    stored = [Access(pointer, place, "store", True) for place in places]
    return Loop("i", "0", "evo::deep", step, unrolled=True, called=True, body=[*stored])


def _multiplied(text: str) -> Iterator[Access]:
    """Tiles of two operands, each `_TILES` vectors of brain floats for every eight steps and part."""
    for place in arguments(text)[1:]:
        pointer, _, index = place.partition(" + ")
        parts = _PARTS.search(index)
        yield Access(pointer, index, "load", True, vectors=64 * int(parts.group(1) if parts else 1))


def _accesses(text: str) -> Iterator[Access]:
    if _MATRIX.match(text):
        yield from _multiplied(text)
        return
    stored: list[Access] = []
    if found := _PACKED.match(text):
        stored.append(Access(found.group(2), _SOMEWHERE, "store", found.group(1) == "put_right"))
    for found in _CALL.finditer(text):
        name, pointer = found.groups()
        given = _split(text[found.end() : _closing(text, found.end())])
        index = given[0] if found.group(0).endswith("+ ") else "0"
        if name == "load_quotients":
            index = f"{index} + ({given[-4]}) / {given[-3]}"
        elif name == "lookup":
            index = _SOMEWHERE
        condition = given[-1] if name == "stream" else given[2] if name == "stream_beside" else ""
        word = name.partition("_")[0]
        kind = word if word in ("store", "stream", "prefetch") else "load"
        parts = {"store_beside": len(given) - 2, "stream_beside": len(given) - 3}.get(name, 1)
        apart = given[1] if name == "gather" else _SOMEWHERE if name in ("gather_i32", "lookup") else ""
        access = Access(pointer, index, kind, kind != "prefetch", apart, condition, parts)
        if condition or kind == "store":
            stored.append(access)
        else:
            yield access
    for found in _TILE.finditer(text):  # what is added to it counts as loaded: no instrumented run sees that store
        if found.group(0).endswith("= "):
            stored.append(Access(found.group(1), _TILE_INDEX, "store", True))
        else:
            yield Access(found.group(1), _TILE_INDEX, "load", True)
    text = _TILE.sub("", text)
    for found in _SUBSCRIPT.finditer(text):
        end = _closing(text, found.end())
        writes = found.start() == 0 and text[end + 1 : end + 4] == " = "
        access = Access(found.group(1), text[found.end() : end], "store" if writes else "load", False)
        if writes:
            stored.append(access)
        else:
            yield access
    yield from stored


def arguments(call: str) -> list[str]:
    """Those of ``name(a, b)``."""
    start = call.index("(") + 1
    return _split(call[start : _closing(call, start)])


def _closing(text: str, start: int) -> int:
    """Where the bracket closes that is open at `start`."""
    depth = 0
    for at in range(start, len(text)):
        if text[at] in "([{":
            depth += 1
        elif text[at] in ")]}":
            if depth == 0:
                return at
            depth -= 1
    return len(text)


def _split(text: str) -> list[str]:
    """The parts between commas that stand in no brackets."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [part.strip() for part in (*parts, text[start:])]


def _without_choice(text: str) -> str:
    """The innermost ``(a < b ? c : d)`` as a call with a, b, c and d."""
    depth, start = 0, text.rindex("?")
    end = _closing(text, start)
    while start > 0 and depth <= 0:
        start -= 1
        depth += (text[start] in "([") - (text[start] in ")]")
    start += depth > 0
    return f"{text[:start]}evo::either({_COMPARED.sub(', ', text[start:end])}){text[end:]}"


@lru_cache(1 << 14)
def parsed(text: str) -> ast.expr | None:
    """An integer expression of the printed text as Python's tree; None if it is more than that."""
    while "?" in text:
        text = _without_choice(text)
    plain = text.replace("::", "_").replace("->", "_").replace("&&", " and ").replace("||", " or ")
    try:
        return ast.parse(plain, mode="eval").body
    except SyntaxError:
        return None
