"""Starts the server, or says what is missing."""

from __future__ import annotations

import sys
from pathlib import Path

from evoforge.errors import MissingToolError
from evoforge.mcp._tools import Tools
from evoforge.mcp._turns import Turns

__all__ = ["serve"]


def serve(store_url: str, root: str | Path = ".", *, sandbox: str = "strict") -> None:
    """Serves until stdin ends; stdout carries the protocol and nothing else.

    An answer to a ticket that is being judged then is judged to its end, for its verdict is kept.

    Args:
        root: task and kernel files are read from below this folder.
        sandbox: the level for every kernel that comes in.

    Raises:
        KeyboardInterrupt: by a signal; what is being judged ends as a command does.
        MissingToolError: the SDK is not installed.
        UsageError, StoreError: what `Tools` refuses.
    """
    try:
        from evoforge.mcp._server import build_server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise MissingToolError(
            "evoforge mcp needs the SDK mcp>=2; run in evoforge's folder: pip install -e '.[mcp]'"
        ) from None
    with Tools(store_url, root, sandbox=sandbox) as tools:
        if tools.missing:  # it may come yet; a wrong address should not wait for the first call
            sys.stderr.write(f"note: {tools.missing}\n")
        turns = Turns()
        try:
            turns.serve(lambda: build_server(tools, turns).run("stdio"))
        except* BrokenPipeError:
            pass  # the client is gone, and nobody is left to be told
