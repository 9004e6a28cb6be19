"""SEARCH/REPLACE edits: finding, applying and writing them.

::

    <<<<<<< SEARCH
    lines as they stand
    =======
    lines in their place
    >>>>>>> REPLACE

Marks of five to nine signs are read, and ORIGINAL and UPDATED as other tools call the two.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from evoforge.errors import ReplyError

__all__ = ["MAX_EDITS", "Edit", "apply_edits", "find_edits", "is_marker", "render_edits"]

MAX_EDITS = 64

_SEARCH = re.compile(r"^[ \t]{0,12}<{5,9} ?(?:SEARCH|ORIGINAL)\b[ \t]*(?:[:>][ \t]*)?$", re.I)
_MIDDLE = re.compile(r"^[ \t]{0,12}={5,9}[ \t]*$")
_REPLACE = re.compile(r"^[ \t]{0,12}>{5,9} ?(?:REPLACE|UPDATED)\b[ \t]*(?::[ \t]*)?$", re.I)


@dataclass(frozen=True)
class Edit:
    """Lines to find and the lines that take their place."""

    search: tuple[str, ...]
    replace: tuple[str, ...]


def is_marker(line: str) -> bool:
    """Whether a line is one of an edit's three (a bare ``=======`` counts only inside an edit)."""
    return bool(_SEARCH.match(line) or _REPLACE.match(line))


def find_edits(lines: Sequence[str]) -> tuple[list[Edit], int, bool]:
    """The edits, the index of the line that the last one ends on (-1: none), and whether it is whole.

    Raises:
        ReplyError: there are more than `MAX_EDITS`, or their marks are out of order.
    """
    edits: list[Edit] = []
    search: list[str] | None = None
    replace: list[str] | None = None
    end = -1
    for index, line in enumerate(lines):
        if _SEARCH.match(line):
            if search is not None:
                raise ReplyError("an edit begins inside another one; expected '>>>>>>> REPLACE' after every SEARCH")
            search, end = [], index
        elif search is not None and replace is None and _MIDDLE.match(line):
            replace = []
        elif search is not None and _REPLACE.match(line):
            if replace is None:
                raise ReplyError("an edit has no '=======' between SEARCH and REPLACE")
            edits.append(Edit(tuple(search), tuple(replace)))
            search = replace = None
            end = index
        elif replace is not None:
            replace.append(line)
        elif search is not None:
            search.append(line)
    if len(edits) > MAX_EDITS:
        raise ReplyError(f"expected at most {MAX_EDITS} edits, got {len(edits)}; send the whole file instead")
    return edits, len(lines) if search is not None else end, search is None


def apply_edits(text: str, edits: Sequence[Edit]) -> str:
    """`text` with the edits made in order, each on what the one before left.

    The lines of a SEARCH must stand in the text exactly once; if they do not, they must once spaces
    are ignored, and the replacement is then indented as the text is.

    Raises:
        ReplyError: one matches nothing or several places, or all of them change nothing.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    for number, edit in enumerate(edits, 1):
        search, replace = _trimmed(edit)
        if not search:
            raise ReplyError(f"edit {number} searches for nothing; expected lines of the source")
        place, shift = _place(lines, search, number)
        lines[place : place + len(search)] = [_shifted(line, shift) for line in replace]
    result = "\n".join(lines)
    if result == text:
        raise ReplyError("the edits change nothing")
    return result


def render_edits(edits: Sequence[Edit]) -> str:
    """Edits as text; `find_edits` gives the same edits back.

    Raises:
        ValueError: a line of theirs is itself a mark.
    """
    out: list[str] = []
    for edit in edits:
        if any(is_marker(line) or _MIDDLE.match(line) for line in (*edit.search, *edit.replace)):
            raise ValueError("expected lines that are no marks of an edit, got one; give the whole text instead")
        out += ["<<<<<<< SEARCH", *edit.search, "=======", *edit.replace, ">>>>>>> REPLACE"]
    return "\n".join(out)


def _trimmed(edit: Edit) -> tuple[list[str], list[str]]:
    """Both sides without a fence around them or the blank lines that both begin or end with; SEARCH without any."""
    search, replace = _unfenced(edit.search), _unfenced(edit.replace)
    for _ in range(2):  # the beginning, then, turned round, the end
        blank = _blanks(search)
        del search[:blank], replace[: min(blank, _blanks(replace))]
        search.reverse()
        replace.reverse()
    return search, replace


def _unfenced(lines: Sequence[str]) -> list[str]:
    """The lines inside of a fence that is all there is; else all of them."""
    written = [at for at, line in enumerate(lines) if line.strip()]
    if len(written) > 1 and lines[written[0]].lstrip().startswith("```") and lines[written[-1]].strip() == "```":
        return list(lines[written[0] + 1 : written[-1]])
    return list(lines)


def _blanks(lines: Sequence[str]) -> int:
    """How many blank lines there are before any other."""
    return next((at for at, line in enumerate(lines) if line.strip()), len(lines))


def _place(lines: Sequence[str], search: Sequence[str], number: int) -> tuple[int, int]:
    """Where `search` stands, and by how many columns it must be indented."""
    found = _matches(lines, search)
    if len(found) == 1:
        return found[0], 0
    if not found:
        found = _matches([" ".join(line.split()) for line in lines], [" ".join(line.split()) for line in search])
    if len(found) == 1:
        return found[0], _indent(lines[found[0]]) - _indent(search[0])
    first = " ".join(search[0].split())[:60]
    where = "several" if found else "none"
    raise ReplyError(f"edit {number} must match one place of the source, got {where} for {first!r}")


def _matches(lines: Sequence[str], search: Sequence[str]) -> list[int]:
    """Indices of the first two places; as one string, whose search is linear even for hostile text."""
    text, wanted = "\n".join(("", *lines, "")), "\n".join(("", *search, ""))
    found: list[int] = []
    at = text.find(wanted)
    while at >= 0 and len(found) < 2:
        found.append(text.count("\n", 0, at))
        at = text.find(wanted, at + 1)
    return found


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))


def _shifted(line: str, by: int) -> str:
    if not line.strip() or by == 0:
        return line
    return " " * by + line if by > 0 else line[min(-by, _indent(line)) :]
