"""`evoforge show` and `evoforge lineage`: one kernel, and who it came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from evoforge.cli._options import DEFAULT_STORE, Json, StoreUrl

__all__ = ["lineage", "show"]

_Prefix = Annotated[str, typer.Argument(metavar="ID", help="A candidate's id, or its unique beginning.")]


def show(prefix: _Prefix, store: StoreUrl = DEFAULT_STORE, as_json: Json = False) -> None:
    """One candidate: source, origin, evaluations."""
    from evoforge.campaign import show as read_candidate
    from evoforge.cli._output import Column, cell_text, emit, ms_text, params_text, speedup_text, table

    found = read_candidate(prefix, store)
    if as_json:
        emit(found)
        return
    for key in ("candidate", "language", "operator", "meta_prompt", "model", "licence"):
        print(f"{key.replace('_', ' '):<12} {found.get(key) or '–'}")
    print(f"{'parents':<12} {' '.join(str(parent)[:12] for parent in found.get('parents') or ()) or '–'}")
    rows = found.get("evaluations") or []
    if rows:
        heats: tuple[Column, ...] = (
            ("hot", lambda row: speedup_text(row.get("speedup_hot"))),
            ("cold", lambda row: speedup_text(row.get("speedup_cold"))),
        )
        table(
            rows,
            (
                ("status", lambda row: str(row["status"])),
                ("kind", lambda row: str(row.get("kind", "–"))),
                ("cell", lambda row: cell_text(row.get("cell"))),
                ("speed-up", lambda row: speedup_text(row.get("speedup"))),
                ("latency", lambda row: ms_text(row.get("latency_ms"))),
                ("sandbox", lambda row: str(row.get("sandbox", "–"))),
                *(column for column in heats if any(column[1](row) != "–" for row in rows)),
                ("params", lambda row: params_text(row.get("params"))),
                ("reason", lambda row: str(row.get("reason") or "")[:120]),
            ),
            numeric=("speed-up", "latency", "hot", "cold"),
        )
    print(found["source"].rstrip())


def lineage(prefix: _Prefix, store: StoreUrl = DEFAULT_STORE, as_json: Json = False) -> None:
    """The ancestors of a candidate, as a tree."""
    from evoforge.campaign import lineage as read_lineage
    from evoforge.cli._output import console, emit

    found = read_lineage(prefix, store)
    if as_json:
        emit(found)
        return
    console().print(_tree(found))


def _tree(found: Mapping[str, Any]) -> Any:
    """Nodes under their children; an ancestor that was already drawn is named once more without its own."""
    from rich.tree import Tree

    nodes = {node["candidate"]: node for node in found["nodes"]}
    parents: dict[str, list[str]] = {}
    for edge in found["edges"]:
        parents.setdefault(edge["child"], []).append(edge["parent"])
    root = found.get("candidate") or found["nodes"][0]["candidate"]
    seen: set[str] = set()

    def grow(branch: Any, name: str) -> None:
        if name in seen:
            return
        seen.add(name)
        for parent in parents.get(name, ()):
            again = " (above)" if parent in seen else ""
            grow(branch.add(_label(nodes.get(parent, {"candidate": parent})) + again), parent)

    tree = Tree(_label(nodes[root]))
    grow(tree, root)
    return tree


def _label(node: Mapping[str, Any]) -> str:
    from evoforge.cli._output import cell_text, speedup_text

    parts = [str(node["candidate"])[:12], str(node.get("operator") or "")]
    if node.get("meta_prompt"):
        parts.append(str(node["meta_prompt"]))
    if node.get("cell") is not None:
        parts.append(f"cell {cell_text(node['cell'])}")
    if node.get("speedup") is not None:
        parts.append(speedup_text(node["speedup"]))
    return " · ".join(part for part in parts if part)
