"""`evoforge show` and `evoforge lineage`: one kernel, and who it came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from evoforge.cli._options import DEFAULT_STORE, Json, StoreUrl

__all__ = ["lineage", "show"]

_Prefix = Annotated[str, typer.Argument(metavar="ID", help="A candidate's id, or its unique beginning.")]


def show(prefix: _Prefix, store: StoreUrl = DEFAULT_STORE, as_json: Json = False) -> None:
    """One candidate: source, origin, evaluations."""
    from evoforge.campaign import show as read_candidate
    from evoforge.cli._output import (
        NEWLINES,
        Column,
        cell_text,
        emit,
        ms_text,
        params_text,
        speedup_text,
        table,
    )  # fmt: skip
    from evoforge.core import printable

    found = read_candidate(prefix, store)
    if as_json:
        emit(found)
        return
    for key in ("candidate", "language", "operator", "meta_prompt", "model", "licence"):
        print(f"{key.replace('_', ' '):<12} {found.get(key) or '–'}")
    print(f"{'parents':<12} {' '.join(str(parent)[:12] for parent in found.get('parents') or ()) or '–'}")
    every = found.get("evaluations") or []
    rows = [row for row in every if row["status"] != "DUPLICATE"] or every
    if rows:
        heats: tuple[Column, ...] = (
            ("hot", lambda row: speedup_text(row.get("speedup_hot"))),
            ("cold", lambda row: speedup_text(row.get("speedup_cold"))),
        )
        several = len({row["campaign"] for row in rows}) > 1
        whose: tuple[Column, ...] = (("campaign", lambda row: str(row["campaign"])),) if several else ()
        table(
            rows,
            (
                *whose,
                ("status", lambda row: str(row["status"])),
                ("kind", lambda row: str(row.get("kind", "–"))),
                ("cell", lambda row: cell_text(row.get("cell"))),
                ("speed-up", lambda row: speedup_text(row.get("speedup"))),
                ("latency", lambda row: ms_text(row.get("latency_ms"))),
                ("params", lambda row: params_text(row.get("params"))),
                *(column for column in heats if any(column[1](row) != "–" for row in rows)),
                ("sandbox", lambda row: "–" if row["status"] == "DUPLICATE" else str(row.get("sandbox", "–"))),
            ),
            numeric=("speed-up", "latency", "hot", "cold"),
        )
    if len(rows) < len(every):
        print(f"{len(every) - len(rows)} more settings compile to what was tried (--json lists them)")
    # Below the table: one would not fit into it, and says what to mend.
    for status, reason in dict.fromkeys((row["status"], row["reason"]) for row in rows if row.get("reason")):
        print(printable(f"{status}: {reason}", NEWLINES))
    print(printable(found["source"].rstrip(), NEWLINES))


def lineage(prefix: _Prefix, store: StoreUrl = DEFAULT_STORE, as_json: Json = False) -> None:
    """The ancestors of a candidate, as a tree."""
    from evoforge.campaign import lineage as read_lineage
    from evoforge.cli._output import console, emit

    found = read_lineage(prefix, store)
    if as_json:
        emit(found)
        return
    out = console()
    for tree in _trees(found, max((out.width - _LABEL_WIDTH) // _INDENT, _LEAST_DEPTH)):
        out.print(tree)


_LABEL_WIDTH = 60
_INDENT = 4  # columns that rich takes per generation
_LEAST_DEPTH = 3


def _trees(found: Mapping[str, Any], most: int) -> Iterator[Any]:
    """Nodes under their children, at most so many generations deep; what goes on has a tree of its own further down.

    An ancestor that was already drawn, or will be, is named once more without its own.
    """
    from rich.text import Text
    from rich.tree import Tree

    nodes = {node["candidate"]: node for node in found["nodes"]}
    several = len({node["campaign"] for node in found["nodes"] if node["campaign"]}) > 1
    parents: dict[str, list[str]] = {}
    for edge in found["edges"]:
        parents.setdefault(edge["child"], []).append(edge["parent"])
    roots = [found["candidate"]]
    drawn: set[str] = set()

    def label(name: str, elsewhere: str = "") -> Any:
        return Text(f"{name[:12]} ({elsewhere})" if elsewhere else _label(nodes[name], several))

    def grow(branch: Any, name: str, depth: int) -> None:
        drawn.add(name)
        for parent in parents.get(name, ()):
            if parent in drawn:
                branch.add(label(parent, "above"))
            elif parent in roots or (depth == most and parent in parents):
                roots.extend([] if parent in roots else [parent])
                branch.add(label(parent, "below"))
            else:
                grow(branch.add(label(parent)), parent, depth + 1)

    for root in roots:  # grows while it is read
        tree = Tree(label(root))
        grow(tree, root, 1)
        yield tree


def _label(node: Mapping[str, Any], with_campaign: bool) -> str:
    from evoforge.cli._output import cell_text, speedup_text

    parts = [str(node["candidate"])[:12], str(node["operator"] or "")]
    if node["meta_prompt"]:
        parts.append(str(node["meta_prompt"]))
    if node["cell"] is not None:
        parts.append(f"cell {cell_text(node['cell'])}")
    if node["speedup"] is not None:
        parts.append(speedup_text(node["speedup"]))
    if with_campaign and node["campaign"]:
        parts.append(f"in {node['campaign']}")
    return " · ".join(part for part in parts if part)
