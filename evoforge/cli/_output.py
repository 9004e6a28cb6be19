"""Printing: one JSON object, small tables, one-sentence errors."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "EXIT_INTERRUPTED",
    "EXIT_MISUSE",
    "EXIT_TERMINATED",
    "NEWLINES",
    "Column",
    "cell_text",
    "clock_text",
    "console",
    "emit",
    "error_object",
    "fail",
    "finished_before",
    "give_up",
    "ms_text",
    "number_text",
    "params_text",
    "speedup_text",
    "table",
    "with_finished",
    "working",
]

EXIT_MISUSE = 2
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143
NEWLINES = "\n\t"
_PIPE_WIDTH = 400


def plain(value: Any) -> Any:
    """`value` as strict JSON data: NaN and infinities become null, records and sets become lists or objects."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str | int | bool) or value is None:
        return str(value) if isinstance(value, str) else value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Iterable):
        items = [plain(item) for item in value]
        return sorted(items) if isinstance(value, set | frozenset) else items
    return str(value)


def emit(value: Mapping[str, Any]) -> None:
    """Prints the command's one JSON object."""
    print(json.dumps(plain(value), indent=2, allow_nan=False, ensure_ascii=False), flush=True)


def error_object(kind: str, message: str) -> dict[str, Any]:
    """How `--json` says what went wrong."""
    return {"error": {"type": kind, "message": message}}


def fail(kind: str, message: str, as_json: bool, status: int, finished: Mapping[str, Any] | None = None) -> int:
    """Says what went wrong, on stderr in one sentence, or as JSON on stdout; returns `status`.

    `finished`: what the command would have printed of what was done before.
    """
    if as_json:
        try:
            emit({**error_object(kind, message), **(finished or {})})
            return status
        except OSError:  # nowhere to print to, which may be what went wrong
            pass
    from evoforge.core import printable

    with suppress(OSError):
        print(f"evoforge: {printable(message, NEWLINES)}", file=sys.stderr)
    return status


def give_up(stream: TextIO) -> None:
    """What is written to `stream` from now on is lost in silence: where it led takes no more.

    Python would try once more when it ends, and exit with 120 and a traceback.
    """
    with suppress(OSError, ValueError):  # a stream that is none of the system's
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def with_finished(error: BaseException, finished: Mapping[str, Any]) -> None:
    """Lets `error` carry what was done before it: `--json` prints one object, and this would be lost."""
    error.__dict__["finished"] = finished


def finished_before(error: BaseException) -> Mapping[str, Any]:
    """What `with_finished` gave it."""
    found: Mapping[str, Any] = getattr(error, "finished", {})
    return found


def console(*, stderr: bool = False) -> Console:
    """A rich console; into a file or a pipe it writes lines as long as they need to be."""
    from rich.console import Console

    made = Console(stderr=stderr, highlight=False)
    if not made.is_terminal:
        made = Console(stderr=stderr, highlight=False, width=_PIPE_WIDTH)
    return made


def working(text: str) -> AbstractContextManager[object]:
    """Shows on stderr that something is going on, where a terminal is watched."""
    out = console(stderr=True)
    return out.status(text, spinner="dots") if out.is_terminal else nullcontext()


Column = tuple[str, Callable[[Mapping[str, Any]], str]]


def table(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[Column], *, title: str = "", numeric: Sequence[str] = ()
) -> None:
    """Prints `rows`. On a narrow terminal the columns at the end fall away until the rest fits."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    out = console()
    cells = [[Text(render(row)) for _, render in columns] for row in rows]
    widths = [max([len(name), *(len(line[i]) for line in cells)]) for i, (name, _) in enumerate(columns)]
    shown = len(columns)
    while shown > 2 and sum(widths[:shown]) + 3 * shown + 1 > out.width:
        shown -= 1
    heading = Text(title) if title else None
    made = Table(title=heading, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for name, _ in columns[:shown]:
        made.add_column(name, justify="right" if name in numeric else "left", overflow="fold")
    for line in cells:
        made.add_row(*line[:shown])
    out.print(made)
    if shown < len(columns):
        print(f"(narrow terminal: {', '.join(name for name, _ in columns[shown:])} left out; --json has everything)")


def speedup_text(value: Any) -> str:
    return "–" if value is None else f"{float(value):.2f}×"


def number_text(value: Any, digits: int = 2) -> str:
    return "–" if value is None else f"{float(value):.{digits}f}"


def ms_text(value: Any) -> str:
    """Milliseconds with three significant digits, in the unit that reads best."""
    if value is None:
        return "–"
    ms = float(value)
    if ms >= 1000:
        return f"{ms / 1000:.3g} s"
    return f"{ms:.3g} ms" if ms >= 1 else f"{ms * 1000:.3g} µs"


def cell_text(cell: Any) -> str:
    return "–" if cell is None else " ".join(str(level) for level in cell)


def params_text(params: Mapping[str, Any] | None) -> str:
    return " ".join(f"{name}={value}" for name, value in (params or {}).items()) or "–"


def clock_text(seconds: float | None) -> str:
    """`1:05`, or `2:03:00` from an hour on."""
    if seconds is None:
        return "–"
    whole = max(int(seconds), 0)
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"
