"""The last screen of a run: the best kernel, the elites by niche, where the time went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evoforge.cli._output import (
    Column,
    cell_text,
    clock_text,
    ms_text,
    number_text,
    params_text,
    speedup_text,
    table,
)

if TYPE_CHECKING:
    from evoforge.campaign import Result

__all__ = ["ELITE_COLUMNS", "elites_table", "print_result", "split_text"]

ELITE_COLUMNS: tuple[Column, ...] = (
    ("cell", lambda row: cell_text(row["cell"])),
    ("candidate", lambda row: str(row["candidate"])[:12]),
    ("speed-up", lambda row: speedup_text(_over_baseline(row))),
    ("at least", lambda row: speedup_text(_at_least(row))),
    ("eager", lambda row: speedup_text(row.get("speedup_eager"))),
    ("compiled", lambda row: speedup_text(row.get("speedup_compiled"))),
    ("latency", lambda row: ms_text(row.get("latency_ms"))),
    ("roofline", lambda row: number_text(row.get("roofline_fraction"))),
    ("lines", lambda row: str(row.get("source_lines") or "–")),
    ("made by", lambda row: str(row.get("operator") or "–")),
    ("meta-prompt", lambda row: str(row.get("meta_prompt") or "–")),
    ("params", lambda row: params_text(row.get("params"))),
    ("flags", lambda row: " ".join(row.get("flags") or ()) or "–"),
)
_NUMERIC = ("speed-up", "at least", "eager", "compiled", "latency", "roofline", "lines")


def _over_baseline(row: Mapping[str, Any]) -> float | None:
    objective = row.get("objective")
    return None if objective is None else float(2.0**objective)


def _at_least(row: Mapping[str, Any]) -> float | None:
    lower = row.get("lower")
    return None if lower is None else float(2.0**lower)


def elites_table(rows: Sequence[Mapping[str, Any]], title: str = "") -> None:
    """One line per elite, the fastest first; `at least` is the one-sided 95% bound that ranks."""
    ordered = sorted(rows, key=lambda row: -(row.get("lower") or 0.0))
    table(ordered, ELITE_COLUMNS, title=title, numeric=_NUMERIC)


def split_text(split: Mapping[str, float], wall_s: float) -> str:
    """`verify 41% · time 30% · idle 9%`: shares of wall time, largest first; stages overlap, so they may
    exceed 100% together."""
    if wall_s <= 0:
        return "–"
    seconds = {name: value * wall_s if name == "idle" and value <= 1 else value for name, value in split.items()}
    ordered = sorted(seconds.items(), key=lambda item: (item[0] == "idle", -item[1]))
    return " · ".join(f"{name} {value / wall_s:.0%}" for name, value in ordered if value > 0 or name == "idle")


def print_result(result: Result, store: str) -> None:
    """Everything a person wants to know when a campaign ends, and the commands that go on from it."""
    from evoforge.campaign import elites

    rows = elites(result.campaign, store)
    if rows:
        elites_table(rows, title=f"elites of {result.campaign}")
    print(
        f"{result.campaign}: {result.task} on {result.target}: {result.evaluations} evaluations, {result.correct} correct, "
        f"{result.filled} of {result.reachable} cells, QD score {result.qd_score:.2f}, {clock_text(result.wall_s)}, "
        f"stopped by {result.stop_reason}"
    )
    best = result.best
    if best is not None:
        interval = f" ({best.low:.2f}–{best.high:.2f})" if best.low is not None and best.high is not None else ""
        print(
            f"best: {best.candidate[:12]} in cell {cell_text(best.cell)}: {speedup_text(best.speedup_best_baseline)}"
            f"{interval} over the faster of eager ({speedup_text(best.speedup_eager)}) and compiled "
            f"({speedup_text(best.speedup_compiled)}), {ms_text(best.latency_ms)}"
        )
    elif result.stop_reason != "at_bound":
        print(f"no kernel was confirmed; look at: evoforge status {result.campaign}")
    print(f"time: {split_text(result.split, result.wall_s)}")
    if best is not None:
        print(f"next: evoforge bench {result.campaign} · heatmap {result.campaign} -o map.png · export {result.campaign} -o DIR")
