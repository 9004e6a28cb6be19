"""Options that several commands share, each declared once."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["DEFAULT_STORE", "Inputs", "Json", "Sets", "StoreUrl", "TargetSpec"]

DEFAULT_STORE = "sqlite:///archive/campaigns/evoforge.db"

StoreUrl = Annotated[str, typer.Option("--store", metavar="URL", help="The store, an SQLAlchemy URL.")]
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
