"""`evoforge bench`: measure a campaign's elites again, fresh."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from evoforge.cli._options import DEFAULT_STORE, Json, StoreUrl

__all__ = ["bench"]


def bench(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    top: Annotated[
        int | None, typer.Option(metavar="N", help="Only the N elites of the highest claims.", min=1)
    ] = None,
    store: StoreUrl = DEFAULT_STORE,
    as_json: Json = False,
) -> int:
    """Measure a campaign's elites again, fresh.

    Beside eager and compiled, in new processes. Exits 1 if one of them is no longer correct.
    """
    from evoforge.archives import DISQUALIFYING
    from evoforge.campaign import bench as measure
    from evoforge.cli._output import cell_text, emit, speedup_text, table
    from evoforge.cli._progress import Progress
    from evoforge.core import Status

    progress = Progress()
    with progress:
        progress.begin(name)
        found = measure(name, store, top=top, observer=progress)
    # These say something about the machine or the judge, not that the kernel is wrong.
    untold = (Status.TIMING_SUSPECT, Status.HARNESS_ERROR)
    ends = [Status(row["status"]) for row in found["rows"]]
    hold = [one in untold or (one.correct and one not in DISQUALIFYING) for one in ends]
    status = 0 if all(hold) else 1
    if as_json:
        emit(found)
        return status
    packs = any("prepacked" in (row.get("flags") or ()) for row in found["rows"])
    packed = " (prepacked: with packed weights, too)" if packs else ""
    table(
        sorted(found["rows"], key=lambda row: -(row.get("speedup_best_baseline") or 0.0)),
        (
            ("cell", lambda row: cell_text(row["cell"])),
            ("candidate", lambda row: str(row["candidate"])[:12]),
            ("claimed", lambda row: speedup_text(row.get("claimed_best_baseline"))),
            ("fresh", lambda row: speedup_text(row.get("speedup_best_baseline"))),
            ("95%", interval_text),
            ("eager", lambda row: speedup_text(row.get("speedup_eager"))),
            ("compiled", lambda row: speedup_text(row.get("speedup_compiled"))),
            ("verdict", lambda row: str(row.get("verdict") or row["status"])),
            ("moved", lambda row: str(row.get("moved") or "–") if row.get("verdict") else "–"),
            ("hot", lambda row: speedup_text(row.get("speedup_hot"))),
            ("cold", lambda row: speedup_text(row.get("speedup_cold"))),
            ("flags", lambda row: " ".join(row.get("flags") or ()) or "–"),
        ),
        title=f"elites of {name}, measured again; claimed and fresh are over the faster of eager and compiled{packed}",
        numeric=("claimed", "fresh", "95%", "eager", "compiled", "hot", "cold"),
    )
    lost = [row for row, holds in zip(found["rows"], hold, strict=True) if not holds]
    unknown = [row for row, end in zip(found["rows"], ends, strict=True) if end in untold]
    for what, rows in (("no longer hold", lost), ("could not be measured", unknown)):
        if rows:
            print(f"{what}: " + ", ".join(f"cell {cell_text(row['cell'])} ({row['status']})" for row in rows))
    return status


def interval_text(row: Mapping[str, Any]) -> str:
    low, high = row.get("low"), row.get("high")
    return "–" if low is None or high is None else f"{low:.2f}–{high:.2f}"
