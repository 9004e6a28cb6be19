"""`evoforge campaigns`, `status` and `elites`: what the store holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evoforge.cli._options import DEFAULT_STORE, Json, StoreUrl, next_command

if TYPE_CHECKING:
    from evoforge.cli._output import Column

__all__ = ["campaigns", "elites", "status"]

_Name = Annotated[str, typer.Argument(metavar="NAME")]


def campaigns(store: StoreUrl = DEFAULT_STORE, as_json: Json = False) -> None:
    """List the campaigns in the store."""
    from evoforge.campaign import campaigns as list_campaigns
    from evoforge.cli._output import emit, speedup_text, table
    from evoforge.storage import shown_url

    rows = list_campaigns(store)
    if as_json:
        emit({"campaigns": rows})
        return
    if not rows:
        print(f"no campaigns in {shown_url(store)}; start one with: {next_command('run', 'TASK.py', store=store)}")
        return
    paid: tuple[Column, ...] = (("dollars", _dollars),) if any(row["models"] for row in rows) else ()
    table(
        rows,
        (
            ("campaign", lambda row: str(row["campaign"])),
            ("state", lambda row: str(row.get("state", "–"))),
            ("best", lambda row: speedup_text(row.get("speedup_best_baseline"))),
            ("evaluations", lambda row: str(row.get("evaluations", "–"))),
            ("coverage", lambda row: "–" if row.get("coverage") is None else f"{row['coverage']:.0%}"),
            *paid,
            ("task", lambda row: str(row["task"])),
            ("target", lambda row: str(row["target"])),
            ("created (UTC)", lambda row: str(row.get("created", "–"))[:16].replace("T", " ")),
        ),
        numeric=("best", "evaluations", "coverage", "dollars"),
    )


def status(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Absent: the newest campaign.")] = None,
    store: StoreUrl = DEFAULT_STORE,
    as_json: Json = False,
) -> None:
    """How a campaign stands."""
    from evoforge.campaign import status as read_status
    from evoforge.cli._output import emit

    found = read_status(name or _newest(store), store)
    if as_json:
        emit(found)
        return
    hidden = {"reachable_cells"} if found["models"] else {"reachable_cells", "usd", "models"}
    margin = found.pop("aa_margin")
    found["noise"] = None if margin is None else f"{2**margin - 1:.0%}, a binary against itself"
    shown = {key: value for key, value in found.items() if key not in hidden}
    width = max(len(key) for key in shown)
    for key, value in shown.items():
        print(f"{key.replace('_', ' '):<{width}}  {_value_text(value)}")


def elites(name: _Name, store: StoreUrl = DEFAULT_STORE, as_json: Json = False) -> None:
    """The best kernel of every niche."""
    from evoforge.campaign import elites as read_elites
    from evoforge.cli._output import emit
    from evoforge.cli._summary import elites_table

    rows = read_elites(name, store)
    if as_json:
        emit({"campaign": name, "elites": rows})
    elif rows:
        elites_table(rows)
    else:
        print(f"{name} has no elite yet; go on with: {next_command('resume', name, '--minutes', 'M', store=store)}")


def _newest(store: str) -> str:
    from evoforge.errors import NotFoundError
    from evoforge.storage import open_store, shown_url

    with open_store(store, create=False) as opened:
        rows = opened.campaigns()
    if not rows:
        raise NotFoundError(
            f"expected a campaign in {shown_url(store)}, it holds none; start one with: evoforge run TASK.py"
        )
    return rows[-1].name


def _dollars(row: Mapping[str, Any]) -> str:
    return f"{row['usd']:.4f}" if row["models"] else "–"


def _value_text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_value_text(item)}" for key, item in value.items()) or "–"
    if isinstance(value, list | tuple):
        return ", ".join(_value_text(item) for item in value) or "–"
    return "–" if value is None else str(value)
