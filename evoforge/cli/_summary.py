"""The last screen of a run: the best kernel, the elites by niche, where the time went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evoforge.cli._options import next_command
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
    ("speed-up", lambda row: speedup_text(row.get("speedup"))),
    ("at least", lambda row: speedup_text(row.get("speedup_low"))),
    ("eager", lambda row: speedup_text(row.get("speedup_eager"))),
    ("compiled", lambda row: speedup_text(row.get("speedup_compiled"))),
    ("latency", lambda row: ms_text(row.get("latency_ms"))),
    ("roofline", lambda row: number_text(row.get("roofline_fraction"))),
    ("hot", lambda row: speedup_text(row.get("speedup_hot"))),
    ("cold", lambda row: speedup_text(row.get("speedup_cold"))),
    ("lines", lambda row: str(row.get("source_lines") or "–")),
    ("made by", lambda row: str(row.get("operator") or "–")),
    ("meta-prompt", lambda row: str(row.get("meta_prompt") or "–")),
    ("params", lambda row: params_text(row.get("params"))),
    ("flags", lambda row: " ".join(row.get("flags") or ()) or "–"),
)
_NUMERIC = ("speed-up", "at least", "eager", "compiled", "latency", "roofline", "hot", "cold", "lines")


def elites_table(rows: Sequence[Mapping[str, Any]], title: str = "") -> None:
    """One line per elite, the highest rank first; `at least` is the 95% bound of what is claimed."""
    ordered = sorted(rows, key=lambda row: -(row.get("lower") or 0.0))
    table(ordered, ELITE_COLUMNS, title=title, numeric=_NUMERIC)


def split_text(split: Mapping[str, float]) -> str:
    """`verify 41.0 s (52%) · build 20.1 s (25%) · … · idle 9% of the wall time`, largest first.

    Shares are of the sum of all stages: builds overlap with one another, so that sum is not wall time.
    """
    idle = split.get("idle_share")
    stages = sorted(((n, s) for n, s in split.items() if n not in ("idle", "idle_share")), key=lambda item: -item[1])
    total = sum(seconds for _, seconds in stages) or 1.0
    parts = [f"{name} {seconds:.1f} s ({seconds / total:.0%})" for name, seconds in stages if seconds >= 0.05]
    parts += [] if idle is None else [f"idle {idle:.0%} of the wall time"]
    return " · ".join(parts) or "–"


def models_text(result: Result) -> str:
    """`12 calls, 48200 tokens in (60% cached), 9100 out, $0.0312`, and what may have been charged unseen."""
    spent = result.models
    tokens_in, cached = int(spent["prompt_tokens"]), int(spent["cached_tokens"])
    share = f" ({cached / tokens_in:.0%} cached)" if tokens_in and cached else ""
    parts = [
        f"{int(spent['calls'])} calls",
        f"{tokens_in} tokens in{share}",
        f"{int(spent['completion_tokens'])} out",
        f"${result.usd:.4f}",
        f"{clock_text(spent['seconds'])} of waiting",
    ]
    if spent["unsure_usd"]:
        parts.append(f"up to ${spent['unsure_usd']:.4f} more that no reply confirmed")
    return ", ".join(parts)


def print_result(result: Result, store: str) -> None:
    """Everything a person wants to know when a campaign ends, and the commands that go on from it."""
    from evoforge.campaign import elites

    name = result.campaign
    rows = elites(name, store)
    if rows:
        elites_table(rows, title=f"elites of {name}")
    print(
        f"{name}: {result.task} on {result.target}: {result.evaluations} evaluations, "
        f"{result.correct} correct, {result.filled} of {result.reachable} cells, "
        f"QD score {result.qd_score:.2f}, {clock_text(result.wall_s)}, "
        + ("prepared" if result.stop_reason == "prepared" else f"stopped by {result.stop_reason}")
    )
    best = result.best
    if best is not None:
        claim = speedup_text(best.speedup_best_baseline)
        if best.low is not None and best.high is not None:
            level = f"{best.confidence:.0%}: " if best.confidence is not None else ""
            claim += f" ({level}{best.low:.2f}–{best.high:.2f})"
        sides = (
            f"eager ({speedup_text(best.speedup_eager)}) and torch.compile ({speedup_text(best.speedup_compiled)})"
            + (", with packed weights too" if "prepacked" in best.flags else "")
        )
        print(
            f"best: {best.candidate[:12]} in cell {cell_text(best.cell)}: {claim} over the faster of {sides}, "
            f"{ms_text(best.latency_ms)}"
        )
        if best.speedup_hot is not None or best.speedup_cold is not None:
            print(f"beside that: hot {speedup_text(best.speedup_hot)}, cold {speedup_text(best.speedup_cold)}")
    elif result.stop_reason == "prepared":
        print(f"prepared, nothing was searched; next: {next_command('ask', name, store=store)}")
    elif result.stop_reason == "at_bound":
        print(next(text for text in result.notices if text.startswith("nothing to gain")))
    else:
        print(f"no kernel was confirmed; look at: {next_command('status', name, store=store)}")
    if result.models:
        print(f"models: {models_text(result)}")
    print(f"time: {split_text(result.split)}")
    if result.stop_reason in ("evals", "minutes"):
        print(f"longer: {next_command('resume', name, f'--{result.stop_reason}', 'N', store=store)}  (in all)")
    if best is not None:
        commands = (("bench", name), ("heatmap", name, "-o", "map.png"), ("export", name, "-o", "DIR"))
        print("next: " + " · ".join(next_command(*words, store=store) for words in commands))
