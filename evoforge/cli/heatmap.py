"""`evoforge heatmap`: the archive as a picture."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from evoforge.cli._options import DEFAULT_STORE, Json, StoreUrl

__all__ = ["heatmap"]


def heatmap(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="F.png", help="PNG, SVG or PDF by its ending.")],
    store: StoreUrl = DEFAULT_STORE,
    as_json: Json = False,
) -> None:
    """Draw a campaign's archive as a heatmap."""
    from evoforge.campaign import elites, status
    from evoforge.cli._output import emit
    from evoforge.core import AXES
    from evoforge.plots import HeatmapData, save_heatmap

    state = status(name, store)
    rows = elites(name, store)
    data = HeatmapData(
        objectives={tuple(row["cell"]): math.log2(row["speedup"]) for row in rows},
        reachable=frozenset(tuple(cell) for cell in state["reachable_cells"]),
        task=state["task"],
        target=state["target"],
        coverage=float(state["coverage"]),
        qd_score=float(state["qd_score"]),
        best=tuple(state["best_cell"]) if state["best_cell"] else None,
        axes=tuple(state.get("axes", AXES)),
    )
    written = save_heatmap(data, output)
    if as_json:
        emit({"campaign": name, "path": str(written), "filled": len(data.objectives)})
    else:
        print(f"{written}: {len(data.objectives)} elite{'s' * (len(data.objectives) != 1)} of {name}")
