"""The typer app, and what happens to errors."""

from __future__ import annotations

import errno
import functools
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable
from typing import Any

import typer

from evoforge.cli import (
    ask,
    bench,
    campaigns,
    candidates,
    db,
    evaluate,
    export,
    heatmap,
    machine,
    mcp,
    run,
    selftest,
    tasks,
)
from evoforge.cli._options import with_store
from evoforge.cli._output import (
    EXIT_INTERRUPTED,
    EXIT_MISUSE,
    EXIT_TERMINATED,
    fail,
    finished_before,
    give_up,
    with_finished,
)
from evoforge.cli._stopping import Terminated, stoppable
from evoforge.errors import EvoforgeError

__all__ = ["app", "dispatch"]

app = typer.Typer(
    name="evoforge",
    help="Evolves kernels that compute what a PyTorch reference computes, faster: a map of the best kernel per niche.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(value: bool) -> None:
    if value:
        from evoforge import __version__

        print(f"evoforge {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass


class _Interrupted(Exception):
    """Ctrl-C or SIGTERM, under a name that typer does not turn into an exit of its own."""

    def __init__(self, stop: KeyboardInterrupt) -> None:
        super().__init__("; ".join(["interrupted", *map(str, stop.args)]))
        self.status = EXIT_TERMINATED if isinstance(stop, Terminated) else EXIT_INTERRUPTED
        with_finished(self, finished_before(stop))


class _ReaderGone(Exception):
    """The reader of our output (head, less) has had enough."""


def _guarded(command: Callable[..., int | None]) -> Callable[..., int | None]:
    @functools.wraps(command)
    def guarded(*args: Any, **kwargs: Any) -> int | None:
        try:
            with stoppable():
                status = command(*args, **kwargs)
        except KeyboardInterrupt as stop:
            raise _Interrupted(stop) from None
        except EvoforgeError as error:
            error.args = (with_store(str(error), kwargs.get("store")), *error.args[1:])
            raise
        except BrokenPipeError:
            raise _ReaderGone from None
        return status

    return guarded


_COMMANDS: tuple[Callable[..., int | None], ...] = (
    run.run,
    run.resume,
    campaigns.campaigns,
    campaigns.status,
    campaigns.elites,
    candidates.show,
    candidates.lineage,
    evaluate.evaluate,
    bench.bench,
    heatmap.heatmap,
    export.export,
    ask.ask,
    ask.tell,
    mcp.mcp,
    machine.doctor,
    machine.targets,
    selftest.selftest,
)
_FAMILIES: tuple[tuple[str, str, tuple[Callable[..., int | None], ...]], ...] = (
    ("tasks", "Task files: is this one fit to be searched?", (tasks.check,)),
    ("db", "The store: migrate it, verify it.", (db.upgrade, db.check)),
)
for _command in _COMMANDS:
    app.command(_command.__name__)(_guarded(_command))
for _name, _help, _members in _FAMILIES:
    _family = typer.Typer(help=_help, no_args_is_help=True, rich_markup_mode=None)
    for _command in _members:
        _family.command(_command.__name__)(_guarded(_command))
    app.add_typer(_family, name=_name)


_OTHER_WORDS = ("map", "plot", "report")  # for heatmap, which no likeness of letters finds
_CACHE_HINT = "check the path, or set EVOFORGE_CACHE and TMPDIR to folders of yours"
_ENVIRONMENT = {  # what the machine and not evoforge is to blame for, with the mend
    errno.ENOSPC: "make room and try again",
    errno.EDQUOT: "make room and try again",
    errno.EFBIG: "raise the limit on file sizes (ulimit -f) and try again",
    errno.EMFILE: "raise the limit on open files (ulimit -n) and try again",
    errno.ENOMEM: "make the workload smaller with --set NAME=VALUE, or close other programs",
    errno.EACCES: _CACHE_HINT,
    errno.EPERM: _CACHE_HINT,
    errno.EROFS: _CACHE_HINT,
}


def dispatch(argv: list[str]) -> int:
    """Runs `argv`; turns every expected error into one sentence (or one JSON object) and a status."""
    logging.basicConfig(format="note: %(message)s")  # on stderr, warnings and worse
    status = _dispatch(argv)
    error = _unprinted()
    if error is None and sys.stdout is None:  # closed by who started us
        error = OSError(errno.EBADF, os.strerror(errno.EBADF))
    if error is None:
        return status
    if sys.stdout is not None:
        give_up(sys.stdout)
    if isinstance(error, BrokenPipeError) or status not in (0, 1):  # has been told why
        return status
    mend = "make room, or write it to another place" if sys.stdout is not None else "let stdout lead to some place"
    text = f"what was to be printed is lost: {error.strerror}; {mend}"
    return fail(type(error).__name__, text, False, EXIT_MISUSE)


def _unprinted() -> OSError | None:
    """What keeps stdout from taking all that was printed."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        return error
    return None


def _dispatch(argv: list[str]) -> int:
    as_json = "--json" in argv
    try:
        status = app(args=argv or ["--help"], prog_name="evoforge", standalone_mode=False)
    except EvoforgeError as error:
        return fail(type(error).__name__, _with_notes(str(error), error), as_json, EXIT_MISUSE, finished_before(error))
    except _Interrupted as stop:
        return fail("Interrupted", str(stop), as_json, stop.status, finished_before(stop))
    except (_ReaderGone, SystemExit):  # the latter is typer's, and rich's, word for it
        give_up(sys.stdout)
        return 0
    except OSError as error:
        if _unprinted():
            return 0  # `dispatch` tells it
        if error.errno not in _ENVIRONMENT:
            return _misuse_or_bug(error, as_json)
        where = f" at {error.filename}" if error.filename else ""
        text = f"this machine refuses to go on{where}: {error.strerror}; {_ENVIRONMENT[error.errno]}"
        return fail(type(error).__name__, _with_notes(text, error), as_json, EXIT_MISUSE, finished_before(error))
    except Exception as error:  # process boundary: a wrong option, or a bug of evoforge
        return _misuse_or_bug(error, as_json)
    return status if isinstance(status, int) else 0


def _with_notes(text: str, error: Exception) -> str:
    return "; ".join([text, *getattr(error, "__notes__", ())])


def _misuse_or_bug(error: Exception, as_json: bool) -> int:
    # Some versions of typer carry a click of their own: its errors are known by what they can do.
    explain = getattr(error, "format_message", None)
    if explain is None:
        traceback.print_exc()
        text = f"this is a bug in evoforge: {type(error).__name__}: {error}; please report it with the lines above"
        return fail(type(error).__name__, text, as_json, EXIT_MISUSE, finished_before(error))
    if type(error).__name__ == "NoArgsIsHelpError":
        try:
            print(explain(), flush=True)
        except OSError:  # nobody reads any more
            give_up(sys.stdout)
        return EXIT_MISUSE
    context = getattr(error, "ctx", None)
    hint = f" (see '{context.command_path} --help')" if context else ""
    said = re.sub(rf"(No such command '({'|'.join(_OTHER_WORDS)})'\.).*", r"\1 Did you mean 'heatmap'?", explain())
    return fail("UsageError", said.rstrip(".") + hint, as_json, EXIT_MISUSE)
