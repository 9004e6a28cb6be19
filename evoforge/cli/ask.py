"""`evoforge ask` and `evoforge tell`: a person or an agent as the emitter."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from evoforge.cli._options import DEFAULT_STORE, Json, StoreUrl, next_command
from evoforge.errors import UsageError

__all__ = ["ask", "tell"]

_MOST_BYTES = 4_000_000  # an answer has at most a million characters
_Name = Annotated[str, typer.Argument(metavar="NAME")]


def ask(
    name: _Name,
    emitter: Annotated[
        str | None,
        typer.Option(metavar="E", help="invent, improve, aim, cross, repair or parametrise. [default: the bandit's]"),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Print what would be given; issue no ticket.")] = False,
    store: StoreUrl = DEFAULT_STORE,
    as_json: Json = False,
) -> None:
    """Take a ticket: what a model would be told.

    It is answered by `evoforge tell`. A campaign that only answers tickets is made by `evoforge run TASK.py --evals 0`.
    """
    from evoforge.campaign import Tickets
    from evoforge.cli._output import emit

    with Tickets(name, store, waits=_note) as tickets:
        asked = tickets.preview(emitter) if show else tickets.ask(emitter)
    if as_json:
        emit(asked)
        return
    prompt = asked["prompt"]
    if not show:
        print(
            f"ticket {asked['ticket']} of {name}: {asked['operator']}, open until {asked['expires']}; "
            f"answer with: {next_command('tell', name, asked['ticket'], 'FILE', store=store)}\n"
        )
    print(f"{prompt['system'].rstrip()}\n\n{prompt['user'].rstrip()}")


def tell(
    name: _Name,
    ticket: Annotated[int, typer.Argument(metavar="TICKET")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="The kernel, or a reply that holds it; - reads stdin.")],
    store: StoreUrl = DEFAULT_STORE,
    as_json: Json = False,
) -> int:
    """Judge the answer to a ticket.

    Exits 0 if the kernel is correct, 1 if it is not. The same answer again gets the same verdict.
    """
    from evoforge.campaign import Tickets
    from evoforge.cli._output import emit, working
    from evoforge.core import Status

    text = _text(file)
    try:
        with working(f"judging the answer to ticket {ticket}"), Tickets(name, store, waits=_note) as tickets:
            told = tickets.tell(ticket, text)
    except KeyboardInterrupt as stop:
        stop.args = (f"the same text can be told to ticket {ticket} again",)
        raise
    if as_json:
        emit(told)
    else:
        _print(told)
    return 0 if Status(told["status"]).correct else 1


def _note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr, flush=True)


def _text(file: str) -> str:
    """What FILE or stdin holds, read no further than an answer may be long."""
    try:
        if file == "-":
            data = sys.stdin.buffer.read(_MOST_BYTES + 1)
        else:
            with Path(file).open("rb") as stream:
                data = stream.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise UsageError(f"expected an answer of at most {_MOST_BYTES} bytes, got more in {file}; send the kernel")
        return data.decode("utf-8")
    except OSError as error:
        raise UsageError(f"expected an answer in {file}, got: {error.strerror}; check the path") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"expected UTF-8 text in {file}, got a byte that is none at {error.start}") from error


def _print(told: Mapping[str, Any]) -> None:
    from evoforge.cli._output import cell_text, ms_text, number_text, params_text, speedup_text

    print(f"{told['status']}{': ' + told['reason'] if told['reason'] else ''}")
    # Of a duplicate all that follows is another answer's.
    whose = "of candidate" if told["status"] == "DUPLICATE" else "candidate"
    print(f"{whose} {told['candidate'][:12]}: cell {cell_text(told['cell'])} · {told['placement'] or 'not placed'}")
    if told["latency_ms"] is not None:
        bounds = [f"{name} {ms_text(bound)}" for name, bound in told["bound_ms"].items() if bound is not None]
        print(
            f"{ms_text(told['latency_ms'])} · {speedup_text(told['speedup'])} the baseline · "
            f"roofline {number_text(told['roofline_fraction'])} · bound {', '.join(bounds) or '–'}"
        )
    if told["max_error"] is not None:
        print(f"largest error {told['max_error']:.3g}, on inputs of every scale")
    if told["params"]:
        print(f"params {params_text(told['params'])}")
    if told["flags"]:
        print(f"flags {' '.join(told['flags'])}")
