"""The panel reads well at any width; pipes get sparse lines."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from evoforge.campaign import Event, Result
from evoforge.cli._output import clock_text, ms_text
from evoforge.cli._progress import Progress, State, best_text, draw
from evoforge.cli._summary import models_text, split_text

EVENTS = (
    Event("phase", 0.1, {"text": "starting the reference"}),
    Event("first", 4.0, {"candidate": "ab" * 32, "latency_ms": 3.21, "speedup_eager": 1.4}),
    Event("baseline", 9.0, {"workload": "default", "eager_ms": 5.0, "compiled_ms": 3.0, "chosen": "compiled"}),
    Event("notice", 9.1, {"text": "this machine is noisy: a binary against itself differs by 12%"}),
    Event("evaluation", 10.0, {"status": "CORRECT", "cell": (1, 3, 3), "objective": 0.7}),
    Event("best", 11.1, {"speedup": 1.62, "low": 1.58, "high": 1.66, "speedup_eager": 2.1, "speedup_compiled": 1.62}),
    Event(
        "progress", 61.0,
        {"evaluations": 20, "correct": 17, "budget_evals": 80, "elapsed_s": 60.0, "budget_s": 180.0,
         "coverage": 0.05, "filled": 2, "reachable": 40, "phase": "confirming",
         "cells": {(1, 3, 3): 0.7, (0, 1, 0): -1.0}},
    ),
)  # fmt: skip


@pytest.fixture
def state() -> State:
    made = State()
    made.name = "quickstart"
    for event in EVENTS:
        made.update(event)
    return made


def shown(state: State, width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None, legacy_windows=False).print(draw(state, width))
    return out.getvalue()


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_the_panel_fits_and_says_everything(state: State, width: int) -> None:
    text = shown(state, width)
    assert max(map(len, text.splitlines())) <= width
    flat = " ".join(text.replace("│", " ").split())
    for part in (
        "quickstart",
        "confirming",
        "20 of 80, 17 correct",
        "1.62×",
        "(90%: 1.58–1.66)",
        "eager 2.10×",
        "2 of 40 cells (5%)",
    ):
        assert part in flat
    assert "noisy" in flat


def test_wide_terminals_get_the_heat_grid(state: State) -> None:
    assert shown(state, 80).count("■") == 2
    assert "tiling 3" in shown(state, 80)
    assert "■" not in shown(state, 40)


def test_the_heat_grid_forgets_what_was_demoted(state: State) -> None:
    state.update(Event("progress", 62.0, {"cells": {(0, 1, 0): -1.0}}))
    assert shown(state, 80).count("■") == 1 and "1.62×" in shown(state, 80)
    state.update(Event("progress", 63.0, {"cells": {}}))
    assert "■" not in shown(state, 80) and "1.62×" not in shown(state, 80), "nor is there a best"


def test_a_panel_before_anything_is_known() -> None:
    assert "starting" in shown(State(), 40)


def test_time_left_is_the_sooner_of_both_budgets(state: State) -> None:
    assert state.left_s == pytest.approx(120.0, abs=1.0)
    state.update(Event("progress", 61.0, {"evaluations": 60, "budget_evals": 80, "elapsed_s": 60.0, "budget_s": 180.0}))
    assert state.left_s == pytest.approx(20.0, abs=1.0)
    state.update(
        Event("progress", 61.0, {"evaluations": 60, "budget_evals": None, "elapsed_s": 60.0, "budget_s": None})
    )
    assert state.left_s is None


def test_a_pipe_gets_sparse_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        progress.begin("quickstart")
        for event in EVENTS:
            progress.on_event(event)
            progress.on_event(event)
    out, err = capsys.readouterr()
    assert out == ""
    lines = [line.partition("] ")[2] for line in err.splitlines()]
    assert lines.count("starting the reference") == 1
    assert len([line for line in lines if line.startswith("best: ")]) == 1, "the same best is told once"
    assert "campaign quickstart" in lines
    assert "first correct kernel: 3.21 ms, 1.40× eager" in lines
    assert "baseline of default: compiled; eager 5 ms, compiled 3 ms" in lines
    assert len([line for line in lines if line.startswith("20 of 80")]) == 1, "state lines come thirty seconds apart"


def test_best_without_an_interval_or_a_compiled_side() -> None:
    assert best_text({"speedup": 1.5, "speedup_eager": 1.5, "speedup_compiled": None}) == "1.50× · eager 1.50×"


def test_units() -> None:
    assert [ms_text(value) for value in (None, 0.0123, 3.217, 4321.0)] == ["–", "12.3 µs", "3.22 ms", "4.32 s"]
    assert [clock_text(value) for value in (None, 65, 7380)] == ["–", "1:05", "2:03:00"]
    assert split_text({"build": 10.0, "time": 30.0, "idle": 3.0, "idle_share": 0.06}) == (
        "time 30.0 s (75%) · build 10.0 s (25%) · idle 6% of the wall time"
    )


def test_what_models_brought_is_counted(state: State, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "no kernel\x1b[2J\nSYSTEM: " + "x" * 500
    useless = Event("useless", 62.0, {"text": hostile, "model": "openai/x", "operator": "invent", "usd": 0.01})
    bred = Event("meta_prompt", 63.0, {"ref": "one-pass@2", "parents": ("one-pass@1",)})
    progress = Progress()
    for event in (useless, useless, bred):
        state.update(event)
        progress.on_event(event)
    assert "1 new meta-prompt, 2 useless replies" in " ".join(shown(state, 100).split())
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and "openai/x" in lines[0] and "\x1b" not in lines[0] and len(lines[0]) < 260
    assert "one-pass@2 from one-pass@1" in lines[1]


def test_the_summary_says_what_models_took() -> None:
    models = {
        "calls": 12, "requests": 13, "prompt_tokens": 1000, "cached_tokens": 600, "completion_tokens": 90,
        "seconds": 65.0, "unsure_usd": 0.5,
    }  # fmt: skip
    result = Result("a", "t", "cpu", 1, 1, 0.1, 1.0, 9.0, 0.0312, "evals", None, models=models)
    text = models_text(result)
    for part in ("12 calls", "1000 tokens in (60% cached)", "90 out", "$0.0312", "1:05", "$0.5000 more"):
        assert part in text
