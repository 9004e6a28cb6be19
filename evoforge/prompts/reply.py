"""From what a model wrote to a kernel: the block that is one, or edits of the parent.

A reply is hostile text. It is read line by line in linear time and never executed, imported or
evaluated; what cannot be told apart safely is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from evoforge.errors import ReplyError
from evoforge.prompts.edits import Edit, apply_edits, find_edits, is_marker
from evoforge.prompts.scrub import code_only, one_line

__all__ = ["MAX_REPLY_CHARS", "MAX_SOURCE_BYTES", "Answer", "parse_reply", "without_thoughts"]

MAX_REPLY_CHARS = 1_000_000
MAX_SOURCE_BYTES = 200_000

_HYPOTHESIS = re.compile(r"^[\s>*_#-]{0,12}hypothesis[\s*_]{0,6}[:：][\s*_]{0,6}(\S.*)$", re.I)
_FENCE = re.compile(r"^([ \t]{0,12})(`{3,64}|~{3,64})[ \t]*([^`\n]{0,200})$")
# A definition, not a mention; the bounds keep hostile text from making the search quadratic.
_C_ENTRY = re.compile(
    r"\bevo_run\s{0,20}\([^(){};]{0,200}\)\s{0,20}(?:noexcept\s{0,20})?(?:->\s{0,20}int\s{0,20})?(?:try\s{0,20})?\{"
)
_PY_ENTRY = re.compile(r"^def[ \t]{1,20}run[ \t]{0,20}\(", re.M)
_C_START = re.compile(r"\s*(?://|/\*|#\s*include|#\s*define|#\s*pragma|extern\b|namespace\b)")
_PY_START = re.compile(r"\s*(?:#(?!#|\s*\w+\s*$)|import\b|from\s+\w|\"\"\"|@triton)")
_FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_NO_FILES = ("diff", "patch")
_WRAPPERS = ("", "text", "plaintext")
_QUOTE = re.compile(r"^[ \t]{0,3}>[ \t]?")
_LATE_FENCE = re.compile(r"(?:`{3,64}|~{3,64})[ \t]*[\w+#.-]{0,20}[ \t]*$")  # behind words
_THOUGHT = re.compile(r"</think(?:ing)?>")
_THOUGHT_IN_CODE = re.compile(r"^[ \t]*</think(?:ing)?>|</think(?:ing)?>[ \t]*$")


@dataclass(frozen=True)
class Answer:
    """A kernel's whole source, what its author expects of it, and how it was given: file or edits."""

    source: str
    hypothesis: str
    kind: str


@dataclass(frozen=True)
class _Block:
    """A fenced block: its text, whether the fence was closed, and the lines it begins and ends on."""

    text: str
    tag: str
    closed: bool
    start: int
    end: int


def parse_reply(text: str, *, language: str, parent: str | None = None, cut: bool = False) -> Answer:
    """The kernel that a reply holds.

    Prose around it, several blocks, both kinds of fences, language tags and CRLF are tolerated, and, where nothing else
    is whole, quoted fences and those that share a line with words or code; what a model thought before it answered is
    left out. Of the blocks that define the entry point (``evo_run``, or ``def run(`` for triton) the last counts. With
    `parent`, SEARCH/REPLACE edits of it are read too; of edits and a whole file, what ends last, but never edits that
    cannot be made; what is wrong with edits that a file follows does not matter.

    Args:
        parent: the source that edits refer to, as it was shown.
        cut: whether the reply was cut off. Only a file in a closed fence is whole then, whatever brackets say; of edits
            nobody knows how many were to follow.

    Raises:
        ReplyError: there is no such kernel; one sentence says why.
    """
    if len(text) > MAX_REPLY_CHARS:
        raise ReplyError(f"expected a reply of at most {MAX_REPLY_CHARS} characters, got {len(text)}")
    if not text.strip():
        raise ReplyError("expected a kernel, got an empty reply")
    lines = without_thoughts(text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    blocks, outside = _blocks(lines)
    file = _file(blocks, language)
    sound = file is not None and (file.closed or (not cut and _complete(file.text, language)))
    if not sound and _last_mark(lines) < 0:
        others, beside = _blocks(refenced := _refenced(lines))
        found = _file(others, language)
        if found is not None and found.closed and _complete(found.text, language):
            lines, blocks, outside, file, sound = refenced, others, beside, found, True
    hypothesis = _hypothesis(lines, outside)
    edits, end, whole = list[Edit](), -1, True
    if parent is not None and not (sound and file is not None and file.start > _last_mark(lines)):
        edits, end, whole = find_edits(lines)
    if parent is not None and (edits or not whole) and (file is None or end > file.end):
        if not whole:
            raise ReplyError("the reply ends inside an edit; expected '>>>>>>> REPLACE' after every SEARCH")
        if cut:
            raise ReplyError("the reply was cut off and may lack edits; a larger max_tokens of the model may help")
        try:
            return Answer(_checked(apply_edits(parent, edits), language), hypothesis, "edits")
        except ReplyError:
            if not sound:
                raise
    if file is not None:
        if not sound:
            raise ReplyError("the reply ends inside its code block; expected a whole kernel and a closed fence")
        return Answer(_checked(file.text, language), hypothesis, "file")
    if blocks:
        held = f"{len(blocks)} code block{'s' if len(blocks) > 1 else ''} without it"
        held += "" if blocks[-1].closed else ", the last one cut off"
        raise ReplyError(f"expected a code block that defines {_entry_name(language)}, got {held}")
    return Answer(_checked(_bare(lines, language, cut), language), hypothesis, "file")


def without_thoughts(lines: Sequence[str]) -> list[str]:
    """What follows the last ``</think>``, if anything does: drafts before it are no answer.

    In a fence or an edit it may be part of a kernel, or end a thought that left them open: there only one that its line
    begins or ends with counts.
    """
    prose = set(_blocks(lines)[1])
    last, end, editing = -1, 0, False
    for at, line in enumerate(lines):
        if at in prose and is_marker(line):
            editing = not editing
        for found in (_THOUGHT if at in prose and not editing else _THOUGHT_IN_CODE).finditer(line):
            last, end = at, found.end()
    after = [lines[last][end:].lstrip(), *lines[last + 1 :]] if last >= 0 else []
    return after if any(line.strip() for line in after) else list(lines)


def _blocks(lines: Sequence[str]) -> tuple[list[_Block], list[int]]:
    """The fenced blocks, and the indices of lines that are in none."""
    blocks: list[_Block] = []
    outside: list[int] = []
    at = 0
    while at < len(lines):
        opening = _FENCE.match(lines[at])
        tag = opening[3].strip().lower() if opening else ""
        if opening is None or tag in ("markdown", "md") or (tag in _WRAPPERS and _wraps(lines, at)):
            outside.append(at)
            at += 1
            continue
        indent, fence = len(opening[1]), opening[2]
        end = at + 1
        while end < len(lines) and not _closes(lines[end], fence):
            end += 1
        body = [_dedent(line, indent) for line in lines[at + 1 : end]]
        blocks.append(_Block("\n".join(body), tag.split()[0] if tag else "", end < len(lines), at, end))
        at = end + 1
    return blocks, outside


def _wraps(lines: Sequence[str], at: int) -> bool:
    """Whether the fence at `at` is around a reply as a whole: the next one opens a block inside of it."""
    inner = next((found for index in range(at + 1, len(lines)) if (found := _FENCE.match(lines[index]))), None)
    return inner is not None and bool(inner[3].strip())


def _refenced(lines: Sequence[str]) -> list[str]:
    """The lines with fences that are quoted, or that words precede or code, on lines of their own."""
    out: list[str] = []
    fence, quoted = "", False
    for whole in lines:
        line = _QUOTE.sub("", whole) if quoted or not fence else whole
        bare = line.rstrip()
        if fence:
            marks = len(bare) - len(bare.rstrip(fence[0]))
            if marks >= len(fence):
                out += [bare[:-marks], bare[-marks:]] if bare[:-marks].strip() else [bare]
                fence = ""
            else:
                out.append(line)
            continue
        opening, quoted = line, line != whole
        if not _FENCE.match(line):
            late = _LATE_FENCE.search(bare[-100:])
            words = bare[: len(bare) - len(late[0])] if late is not None else ""
            if late is None or late[0][:3] in words:
                out.append(whole)
                continue
            out.append(words)
            opening = late[0]
        out.append(opening)
        bare = opening.strip()
        fence = bare[: len(bare) - len(bare.lstrip(bare[0]))]
    return out


def _last_mark(lines: Sequence[str]) -> int:
    return max((at for at, line in enumerate(lines) if is_marker(line)), default=-1)


def _closes(line: str, fence: str) -> bool:
    bare = line.strip()
    return len(bare) >= len(fence) and not bare.strip(fence[0])


def _dedent(line: str, indent: int) -> str:
    spaces = len(line) - len(line.lstrip(" \t"))
    return line[min(indent, spaces) :]


def _hypothesis(lines: Sequence[str], outside: Sequence[int]) -> str:
    for index in outside:
        found = _HYPOTHESIS.match(lines[index][:4000])
        if found:
            return one_line(found[1].rstrip("*_ "), 300)
    return ""


def _file(blocks: Sequence[_Block], language: str) -> _Block | None:
    """The last block that is a kernel, closed or not."""
    for block in reversed(blocks):
        edited = any(is_marker(line) for line in block.text.split("\n"))
        if block.tag not in _NO_FILES and not edited and _has_entry(block.text, language):
            return block
    return None


def _bare(lines: Sequence[str], language: str, cut: bool) -> str:
    """A reply that is nothing but a kernel, a hypothesis above it aside."""
    first = next(
        (at for at, line in enumerate(lines) if line.strip() and not _HYPOTHESIS.match(line[:4000])), len(lines)
    )
    text = "\n".join(lines[first:])
    start = _C_START if language in ("cpp", "cuda") else _PY_START
    if not start.match(text) or not _has_entry(text, language):
        raise ReplyError(f"expected a code block that defines {_entry_name(language)}, got prose")
    if cut or not _complete(text, language):
        raise ReplyError("the reply ends inside the kernel; expected a whole one in a closed code block")
    return text


def _has_entry(text: str, language: str) -> bool:
    if language in ("cpp", "cuda"):
        return _C_ENTRY.search(code_only(text, language)) is not None
    return _PY_ENTRY.search(text) is not None


def _entry_name(language: str) -> str:
    return "evo_run" if language in ("cpp", "cuda") else "run"


_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n]){1,8}'|\d(?:'?\w|\.)*|\w+|(?P<bracket>[][(){}])|(?P<broken>/\*|")""",
    re.S,
)
_PY_CODE = re.compile(
    r'''\#[^\n]*|"""(?:\\.|(?!""")[^\\])*"""|\'\'\'(?:\\.|(?!\'\'\')[^\\])*\'\'\'|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'
    |\w+|(?P<bracket>[][(){}])|(?P<broken>["'])''',
    re.S | re.X,
)
_PAIRS = {")": "(", "]": "[", "}": "{"}


def _complete(text: str, language: str) -> bool:
    """Whether a text that nobody closed can be whole: every bracket, string and comment is."""
    tokens = _CODE if language in ("cpp", "cuda") else _PY_CODE
    stack: list[str] = []
    for found in tokens.finditer(text[: MAX_SOURCE_BYTES + 1]):
        if found["broken"]:
            return False
        bracket = found["bracket"]
        if bracket in _PAIRS:
            if not stack or stack.pop() != _PAIRS[bracket]:
                return False
        elif bracket:
            stack.append(bracket)
    last = text.rstrip().rpartition("\n")[2].strip()
    if language in ("cpp", "cuda"):
        return (not stack and last.endswith(("}", ";", "*/", "#endif"))) or (not stack and last.startswith("//"))
    return not stack and not last.endswith((":", ",", "\\", "="))


def _checked(source: str, language: str) -> str:
    """`source` with one newline at its end, if it can be a kernel."""
    bad = _FORBIDDEN.search(source)
    if bad:
        raise ReplyError(f"the kernel contains the control character U+{ord(bad[0]):04X}; expected plain text")
    body = source.strip("\n").rstrip()
    size = len(body.encode("utf-8"))
    if size > MAX_SOURCE_BYTES:
        raise ReplyError(f"expected a kernel of at most {MAX_SOURCE_BYTES} bytes, got {size}")
    if not _has_entry(body, language):
        raise ReplyError(f"expected a kernel that defines {_entry_name(language)}, got one without it")
    return body + "\n"
