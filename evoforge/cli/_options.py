"""Options that several commands share, each declared once."""

from __future__ import annotations

import re
import shlex
from typing import Annotated

import typer

from evoforge.errors import UsageError

__all__ = ["DEFAULT_STORE", "Inputs", "Json", "Sets", "StoreUrl", "TargetSpec", "next_command", "with_store"]

DEFAULT_STORE = "sqlite:///archive/campaigns/evoforge.db"


def _lasting(url: str) -> str:
    """Every command is a process of its own: what it kept in memory alone, no other one could read."""
    if url.startswith("memory:"):
        raise UsageError(
            f"expected a store that outlives the command, got {url}, which is lost when it ends; "
            "give --store sqlite:///PATH (memory:// is for Python)"
        )
    return url


StoreUrl = Annotated[
    str, typer.Option("--store", metavar="URL", help="The store, an SQLAlchemy URL.", callback=_lasting)
]
Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on stdout.")]
TargetSpec = Annotated[str, typer.Option("--target", metavar="SPEC", help="cpu, cpu:threads=1, cpu:isa=x86-64-v3 …")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Override a constant of the task file; repeatable."),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", metavar="x=f32[8,1024]", help="An input of pkg.mod:Class; repeatable."),
]


def next_command(*words: object, store: str) -> str:
    """A command to go on with, ready to be pasted: quoted, and on the same store."""
    return shlex.join(["evoforge", *map(str, words), *_store_words(store)])


def with_store(message: str, store: str | None) -> str:
    """An error's message; where it names commands that read a store, with the one that was given."""
    words = _store_words(store or DEFAULT_STORE)
    reads = re.search(r"evoforge (run|resume|campaigns|status|elites|bench|ask|tell|db)\b", message)
    return f"{message} (with {shlex.join(words)})" if words and reads and "--store" not in message else message


def _store_words(store: str) -> list[str]:
    from evoforge.storage import shown_url

    return [] if store == DEFAULT_STORE else ["--store", shown_url(store)]
