"""`evoforge mcp`: the campaigns of a store for agents that speak the Model Context Protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evoforge.cli._options import DEFAULT_STORE, StoreUrl
from evoforge.errors import UsageError

__all__ = ["mcp"]

_LEVELS = ("strict", "basic", "none")


def mcp(
    store: StoreUrl = DEFAULT_STORE,
    root: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER", show_default=False, help="Task and kernel files are read from below it. [default: here]"
        ),
    ] = Path(),
    sandbox: Annotated[str, typer.Option(metavar="LEVEL", help="strict, basic or none.")] = "strict",
) -> None:
    """Serve a store to an agent.

    By the Model Context Protocol, over stdin and stdout: campaigns, ask, tell, evaluate, elites and show. Started by
    the agent's client; ends when that closes stdin.
    """
    from evoforge.mcp import serve

    if sandbox not in _LEVELS:
        raise UsageError(f"expected --sandbox {', '.join(_LEVELS)}, got {sandbox!r}")
    serve(store, root, sandbox=sandbox)
