"""The archive as a heatmap: one panel per level of the last axis, the best speed-up of every cell."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evoforge.core import AXES, Cell
from evoforge.plots.style import INK, MUTED, check_format, diverging, ink_on, new_figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["HeatmapData", "draw_heatmap", "save_heatmap"]

_LEVEL_NAMES: dict[str, tuple[str, ...]] = {
    "tiling": ("none", "1 level", "2 levels", "3 or more"),
    "memory": ("scalar", "vector", "staged", "streaming"),
    "fusion": ("all materialised", "some materialised", "inputs read again", "each input read once"),
}
_MIN_SPAN, _MAX_SPAN = 1.0, 3.0  # log2: colours neither exaggerate small differences nor drown them


@dataclass(frozen=True)
class HeatmapData:
    """What the picture shows. `objectives` maps a filled cell to its log2 speed-up over the baseline.

    Three axes; the last one makes the panels, the first one the rows. `coverage` is 0–1. `best` is framed: the cell of
    `Archive.best()`, whose bound is the highest, which need not be the highest objective.
    """

    objectives: Mapping[Cell, float]
    reachable: frozenset[Cell]
    task: str
    target: str
    coverage: float
    qd_score: float
    axes: tuple[str, ...] = AXES
    shape: tuple[int, int, int] = (4, 4, 4)
    best: Cell | None = None

    def __post_init__(self) -> None:
        if len(self.axes) != 3:
            raise ValueError(f"a heatmap needs three axes, got {self.axes}")
        outside = [
            cell
            for cell in {*self.objectives, *self.reachable}
            if len(cell) != 3 or any(not 0 <= level < size for level, size in zip(cell, self.shape, strict=True))
        ]
        if outside:
            raise ValueError(f"cells must lie in the shape {self.shape}, got {outside[0]}")


def save_heatmap(data: HeatmapData, path: str | Path) -> Path:
    """Writes the heatmap as PNG, SVG or PDF, by the ending of `path`.

    Raises:
        UsageError: another ending, or a place that cannot be written.
    """
    path = Path(path)
    check_format(path)
    return save(draw_heatmap(data), path)


def draw_heatmap(data: HeatmapData) -> Figure:
    """The figure itself. Filled cells carry the speed-up; unreachable ones are hatched, empty ones blank."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import TwoSlopeNorm

    span = min(max([_MIN_SPAN, *(abs(value) for value in data.objectives.values())]), _MAX_SPAN)
    colours = ScalarMappable(TwoSlopeNorm(0.0, -span, span), diverging())
    panels = data.shape[2]
    figure = new_figure(2.75 * panels + 1.6, 4.5)
    axes = figure.subplots(1, panels, squeeze=False)[0]
    figure.subplots_adjust(left=0.085, right=0.905, top=0.76, bottom=0.215, wspace=0.10)
    for level in range(panels):
        _panel(axes[level], data, level, colours)
    _labels(figure, axes, data)
    bar = figure.colorbar(colours, extend="both", extendfrac=0.04, cax=figure.add_axes((0.925, 0.215, 0.011, 0.545)))
    ticks = _ticks(span)
    bar.set_ticks([math.log2(tick) for tick in ticks], labels=[f"{tick:g}×" for tick in ticks])
    bar.ax.minorticks_off()
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, colors=INK)
    bar.ax.set_title("speed-up", fontsize=8, color=INK, pad=8)
    return figure


def _panel(axis: Axes, data: HeatmapData, level: int, colours: Any) -> None:
    from matplotlib.patches import Rectangle

    rows, columns, _ = data.shape
    for row in range(rows):
        for column in range(columns):
            cell = (row, column, level)
            box = Rectangle((column, row), 1, 1, facecolor="white", edgecolor="#d0d0d0", linewidth=0.8)
            if cell in data.objectives:
                _filled(axis, box, data.objectives[cell], colours, cell == data.best)
            elif cell not in data.reachable:
                box.set(facecolor="#f4f4f4", hatch="////", edgecolor="#d8d8d8")
            axis.add_patch(box)
    axis.set(xlim=(0, columns), ylim=(0, rows), aspect="equal")
    for side in axis.spines.values():
        side.set_visible(False)


def _filled(axis: Axes, box: Any, objective: float, colours: Any, is_best: bool) -> None:
    colour = colours.to_rgba(objective)
    box.set_facecolor(colour)
    if is_best:
        box.set(edgecolor=INK, linewidth=2.2, zorder=3, clip_on=False)
    x, y = box.get_xy()
    axis.text(
        x + 0.5, y + 0.5, f"{2.0**objective:.2f}×", ha="center", va="center", fontsize=9,
        color=ink_on(colour), fontweight="bold" if is_best else "normal", zorder=4,
    )  # fmt: skip


def _labels(figure: Figure, axes: Any, data: HeatmapData) -> None:
    rows, columns, _ = data.shape
    first, second, third = data.axes
    for level, axis in enumerate(axes):
        name = _level_name(third, level)
        axis.set_title(f"{third} {level}" + (f"\n{name}" if name else ""), fontsize=9.5, color=INK, pad=6)
        axis.set_xticks([c + 0.5 for c in range(columns)], [_tick(second, c) for c in range(columns)], fontsize=7.5)
        axis.set_yticks([r + 0.5 for r in range(rows)], [_tick(first, r) for r in range(rows)], fontsize=7.5)
        axis.tick_params(length=0, colors=INK, labelleft=level == 0, pad=4)
    axes[0].set_ylabel(first, fontsize=9.5, color=INK, labelpad=6)
    figure.text(0.495, 0.1, second, ha="center", fontsize=9.5, color=INK)
    figure.text(
        0.02,
        0.945,
        f"{_short(data.task, 48)} on {_short(data.target, 40)}",
        fontsize=13,
        color=INK,
        weight="bold",
        parse_math=False,
    )
    summary = (
        f"{len(data.objectives)} of {len(data.reachable)} reachable cells filled (coverage {data.coverage:.0%}), "
        f"QD score {data.qd_score:.1f}"
    )
    figure.text(0.02, 0.895, summary, fontsize=9.5, color=MUTED, va="center")
    legend = (
        "latest speed-up over the campaign's baseline; framed: first by the search's own lower bounds; blank: empty; "
        "hatched: unreachable"
    )
    figure.text(0.02, 0.025, legend, fontsize=8, color=MUTED)


def _level_name(axis: str, level: int) -> str:
    names = _LEVEL_NAMES.get(axis, ())
    return names[level] if level < len(names) else ""


def _tick(axis: str, level: int) -> str:
    name = _level_name(axis, level)
    return f"{level}\n{name}" if name else str(level)


def _ticks(span: float) -> list[float]:
    """Speed-ups to label: whole powers of two where they are enough, half steps in a narrow range."""
    if span <= 1.5:
        return [0.5, 0.7, 1.0, 1.4, 2.0] + ([2.8] if span >= 1.485 else [])
    whole = range(-math.floor(span), math.floor(span) + 1)
    return [2.0**power for power in whole]


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
