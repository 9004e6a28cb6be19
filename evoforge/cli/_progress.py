"""What a person sees while a campaign runs: a live panel on a terminal, sparse lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from evoforge.cli._output import clock_text, console, give_up, ms_text, number_text, speedup_text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.text import Text

    from evoforge.campaign import Event

__all__ = ["Progress", "State"]

_LINE_EVERY_S = 30.0
_GRID_MIN_WIDTH = 66
_LEVELS = 4


class State:
    """What the events so far say; drawing reads it and nothing else."""

    def __init__(self) -> None:
        self.name = ""
        self.phase = "starting"
        self.evaluations = 0
        self.correct = 0
        self.budget_evals: int | None = None
        self.budget_s: float | None = None
        self.filled = 0
        self.reachable = 0
        self.best: dict[str, Any] = {}
        self.first: dict[str, Any] = {}
        self.baselines: dict[str, dict[str, Any]] = {}
        self.notices: list[str] = []
        self.useless = 0
        self.bred = 0
        self.cells: dict[tuple[int, ...], float] = {}
        self._started = time.monotonic()
        self._elapsed = (0.0, self._started)

    @property
    def elapsed_s(self) -> float:
        """Seconds of search: the campaign's own count, carried on by our clock between events."""
        base, seen = self._elapsed
        return base + time.monotonic() - seen

    @property
    def left_s(self) -> float | None:
        """Seconds until the first budget ends, by time or at the pace so far; None before either is known."""
        ends = []
        if self.budget_s is not None:
            ends.append(self.budget_s - self.elapsed_s)
        if self.budget_evals and self.evaluations >= 5:
            ends.append((self.budget_evals - self.evaluations) * self.elapsed_s / self.evaluations)
        return max(min(ends), 0.0) if ends else None

    def update(self, event: Event) -> None:
        handler = getattr(self, f"_on_{event.kind}", None)
        if handler is not None:
            handler(event.data, event.at_s)

    def _on_phase(self, data: Any, _: float) -> None:
        self.phase = str(data["text"])

    def _on_notice(self, data: Any, _: float) -> None:
        self.notices.append(str(data["text"]))

    def _on_useless(self, _data: Any, _: float) -> None:
        self.useless += 1

    def _on_meta_prompt(self, _data: Any, _: float) -> None:
        self.bred += 1

    def _on_baseline(self, data: Any, _: float) -> None:
        self.baselines[str(data["workload"])] = dict(data)

    def _on_first(self, data: Any, at_s: float) -> None:
        self.first = {**data, "at_s": at_s}

    def _on_evaluation(self, data: Any, _: float) -> None:
        self.correct += data.get("status") == "CORRECT"

    def _on_best(self, data: Any, _: float) -> None:
        self.best = dict(data)

    def _on_progress(self, data: Any, _: float) -> None:
        self.evaluations = int(data.get("evaluations", self.evaluations))
        self.correct = int(data.get("correct", self.correct))
        self.budget_evals = data.get("budget_evals")
        self.budget_s = data.get("budget_s")
        self.filled = int(data.get("filled", self.filled))
        self.reachable = int(data.get("reachable", self.reachable))
        # The whole map each time: a search that is resumed has one, and elites are demoted.
        self.cells = dict(data.get("cells", self.cells))
        if not self.cells:
            self.best = {}
        self.phase = str(data.get("phase") or self.phase)
        if data.get("elapsed_s") is not None:
            self._elapsed = (float(data["elapsed_s"]), time.monotonic())


class Progress:
    """An observer that draws; a context manager, so that the terminal is always given back.

    On a terminal a panel appears at once and is redrawn four times a second. Elsewhere each phase that
    is new, each notice and each best is one line, and so is the state every thirty seconds. All on stderr.
    """

    def __init__(self) -> None:
        self.state = State()
        self._console: Console = console(stderr=True)
        self._live: Live | None = None
        self._last_line_s = 0.0
        self._told: set[str] = set()
        self._best = ""
        self._started = time.monotonic()

    @property
    def name(self) -> str:
        return self.state.name

    def begin(self, name: str, *, minutes: float | None = None, evals: int | None = None) -> None:
        """Says which campaign it is and what it may spend, once that is known."""
        self.state.name = name
        self.state.budget_s = minutes * 60 if minutes else None
        self.state.budget_evals = evals
        if self._live is None:
            self._line(f"campaign {name}")

    def __enter__(self) -> Progress:
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            from rich.live import Live

            self._live = Live(
                get_renderable=self._draw,
                console=self._console,
                refresh_per_second=4,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=True,
            )
            self._live.__enter__()
        else:
            self._line("starting")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, trace)
            self._live = None
            for notice in self.state.notices:
                print(f"note: {notice}", file=sys.stderr)

    def on_event(self, event: Event) -> None:
        self.state.update(event)
        if self._live is None:
            self._tell(event)

    def _draw(self) -> RenderableType:
        return draw(self.state, self._console.width)

    def _tell(self, event: Event) -> None:
        state, data = self.state, event.data
        if event.kind == "phase" and state.phase not in self._told:
            self._told.add(state.phase)  # a search goes round and round through the same phases
            self._line(state.phase)
        elif event.kind == "notice":
            self._line(f"note: {data['text']}")
        elif event.kind == "baseline":
            self._line(baseline_text(data))
        elif event.kind == "useless" and state.useless == 1:
            self._line(f"useless reply of {data['model']}: {one_line(data['text'])}; more are only counted")
        elif event.kind == "meta_prompt":
            self._line(f"new meta-prompt {data['ref']} from {', '.join(data['parents']) or 'nothing'}")
        elif event.kind == "first":
            self._line(f"first correct kernel: {first_text(data)}")
        elif event.kind == "best" and (text := f"best: {best_text(data)}") != self._best:
            self._best = text  # the archive changes in other cells, too
            self._line(text)
        elif event.kind == "progress" and event.at_s - self._last_line_s >= _LINE_EVERY_S:
            self._last_line_s = event.at_s
            parts = [count_text(state), coverage_text(state), models_text(state), state.phase, left_text(state)]
            self._line(" · ".join(part for part in parts if part))

    def _line(self, text: str) -> None:
        try:
            print(f"[{time.monotonic() - self._started:7.1f} s] {text}", file=sys.stderr, flush=True)
        except OSError:  # nobody reads any more, or the disk of a log is full; the work goes on
            give_up(sys.stderr)


def draw(state: State, width: int) -> RenderableType:
    """The panel for a terminal of `width` columns; from 66 on with the archive as a small heat grid."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    rows = Table.grid(padding=(0, 1))
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column(overflow="fold")
    rows.add_row("phase", Text(state.phase))
    rows.add_row("tried" if width < 50 else "evaluations", count_text(state))
    if state.best:
        rows.add_row("best", Text(best_text(state.best), style="bold"))
    elif state.first:
        rows.add_row("first", first_text(state.first))
    rows.add_row("coverage", coverage_text(state))
    rows.add_row("time left" if width >= 50 else "left", left_text(state))
    if models := models_text(state):
        rows.add_row("models", models)
    if state.notices:
        rows.add_row("note", Text(state.notices[-1], style="yellow"))
    parts: list[RenderableType] = [rows]
    if width >= _GRID_MIN_WIDTH and state.cells:
        parts += [Text(""), grid(state.cells)]
    title = Text(f"evoforge {state.name}".strip(), overflow="ellipsis", no_wrap=True)
    return Panel(Group(*parts), title=title, title_align="left", border_style="dim", width=min(width, 100))


def grid(cells: dict[tuple[int, ...], float]) -> Text:
    """Four rows (tiling 0–3) of four groups (fusion 0–3) of four cells (memory 0–3); colour is the speed-up."""
    from rich.text import Text

    text = Text(no_wrap=True)
    text.append("            " + "".join(f"fusion {level}  " for level in range(_LEVELS)) + "\n", style="dim")
    for tiling in range(_LEVELS):
        text.append(f"tiling {tiling}    ", style="dim")
        for fusion in range(_LEVELS):
            for memory in range(_LEVELS):
                objective = cells.get((tiling, memory, fusion))
                text.append(*(("· ", "dim") if objective is None else ("■ ", _colour(objective))))
            text.append(" ")
        text.append("\n")
    text.append("            each group: memory 0 1 2 3", style="dim")
    return text


def _colour(objective: float) -> str:
    """Blue: faster than the baseline, orange: slower; told apart by colour-blind eyes too."""
    if not math.isfinite(objective) or objective < -0.15:
        return "dark_orange"
    return "grey70" if objective < 0.05 else "deep_sky_blue3" if objective < 0.5 else "bright_cyan"


def count_text(state: State) -> str:
    limit = f" of {state.budget_evals}" if state.budget_evals else ""
    return f"{state.evaluations}{limit}, {state.correct} correct"


def models_text(state: State) -> str:
    """What models brought besides kernels; empty without them."""
    bred = f"{state.bred} new meta-prompt{'s' if state.bred > 1 else ''}" if state.bred else ""
    useless = f"{state.useless} useless repl{'ies' if state.useless > 1 else 'y'}" if state.useless else ""
    return ", ".join(part for part in (bred, useless) if part)


def one_line(text: Any, limit: int = 160) -> str:
    """A text that may come from a model, on one line of a terminal: no controls, not too long."""
    joined = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    return joined if len(joined) <= limit else joined[: limit - 1] + "…"


def coverage_text(state: State) -> str:
    if not state.reachable:
        return "–"
    return f"{state.filled} of {state.reachable} cells ({state.filled / state.reachable:.0%})"


def left_text(state: State) -> str:
    left = state.left_s
    spent = clock_text(state.elapsed_s)
    return f"{spent} spent" if left is None else f"{clock_text(left)} ({spent} spent)"


def best_text(best: Any) -> str:
    """`1.62× (90%: 1.58–1.66) · eager 2.10× · compiled 1.62×`: over the baseline, its 90% interval, over each side."""
    low, high = best.get("low"), best.get("high")
    interval = f" (90%: {number_text(low)}–{number_text(high)})" if low is not None and high is not None else ""
    total = best.get("speedup")
    sides = [
        f"{side} {speedup_text(best[f'speedup_{side}'])}"
        for side in ("eager", "compiled")
        if best.get(f"speedup_{side}") is not None
    ]
    return " · ".join([speedup_text(total) + interval, *sides])


def first_text(first: Any) -> str:
    ratio = first.get("speedup_eager")
    against = f", {speedup_text(ratio)} eager" if ratio is not None else ""
    return f"{ms_text(first.get('latency_ms'))}{against}"


def baseline_text(data: Any) -> str:
    compiled = data.get("compiled_ms")
    sides = f"eager {ms_text(data.get('eager_ms'))}, compiled {ms_text(compiled)}"
    note = f" ({data['note']})" if data.get("note") else ""
    return f"baseline of {data['workload']}: {data.get('chosen')}; {sides}{note}"
