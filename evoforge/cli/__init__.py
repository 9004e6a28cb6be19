"""The command line: parse, call the public API, print.

Modules here import only typer and the standard library at the top, so that `evoforge --help`
answers at once; everything heavy is imported inside the command that needs it.
"""

from __future__ import annotations

import codecs
import signal
import sys
from collections.abc import Sequence

__all__ = ["main"]

_LETTERS = str.maketrans("×µ–·→", "xu-->")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit status.

    0: done. 1: the work ran and the answer is no. 2: misuse or a missing piece. 130: interrupted. 143: terminated.
    """
    try:
        from evoforge.cli._app import dispatch
    except KeyboardInterrupt:
        return 130

    codecs.register_error("evoforge", _spelt)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # × and µ must not end a run on a terminal that lacks them
            stream.reconfigure(errors="evoforge")

    status = dispatch(list(sys.argv[1:] if argv is None else argv))
    if argv is None and status in (130, 143):  # has been said; once more would stop what clears up as Python ends
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return status


def _spelt(error: UnicodeError) -> tuple[str, int]:
    """Signs that an encoding lacks, in letters; ? for what has none."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end].translate(_LETTERS)
    return lacking.encode("ascii", "replace").decode(), error.end
