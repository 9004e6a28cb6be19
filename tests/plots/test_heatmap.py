"""The heatmap draws what the archive holds, and nothing on top of anything else."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path

import pytest
from matplotlib.text import Text

from evoforge.errors import UsageError
from evoforge.plots import HeatmapData, draw_heatmap, save_heatmap

CELLS = list(itertools.product(range(4), repeat=3))
REACHABLE = frozenset(cell for cell in CELLS if cell[2] > 0)


def data(objectives: dict[tuple[int, ...], float], **more: object) -> HeatmapData:
    values: dict[str, object] = {
        "objectives": objectives,
        "reachable": REACHABLE,
        "task": "add_rms_norm",
        "target": "cpu",
        "coverage": len(objectives) / len(REACHABLE),
        "qd_score": sum(value + 5 for value in objectives.values()),
    }
    return HeatmapData(**{**values, **more})  # type: ignore[arg-type]


def texts(figure: object) -> list[Text]:
    return [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]  # type: ignore[attr-defined]


def test_every_elite_is_printed_in_its_panel() -> None:
    figure = draw_heatmap(data({(0, 1, 3): 1.0, (2, 2, 1): -1.0}, best=(0, 1, 3)))
    panels = figure.axes[:4]
    assert [[text.get_text() for text in panel.texts] for panel in panels] == [[], ["0.50×"], [], ["2.00×"]]
    (best,) = panels[3].texts
    assert best.get_position() == (1.5, 0.5)
    assert best.get_fontweight() == "bold"
    words = " ".join(text.get_text() for text in texts(figure))
    assert "add_rms_norm on cpu" in words and "2 of 48 reachable" in words and "QD score 10.0" in words


@pytest.mark.parametrize("best", [(0, 1, 3), (2, 2, 3), None])
def test_the_best_is_framed_and_not_the_highest(best: tuple[int, ...] | None) -> None:
    """What ranks an elite is its bound."""
    panel = draw_heatmap(data({(0, 1, 3): 1.0, (2, 2, 3): 0.5}, best=best)).axes[3]
    framed = [patch.get_xy() for patch in panel.patches if patch.get_linewidth() > 2]
    assert framed == ([] if best is None else [(best[1], best[0])])
    bold = [text.get_text() for text in panel.texts if text.get_fontweight() == "bold"]
    assert bold == {(0, 1, 3): ["2.00×"], (2, 2, 3): ["1.41×"], None: []}[best]


def test_unreachable_cells_are_hatched_and_empty_ones_blank() -> None:
    figure = draw_heatmap(data({(0, 0, 1): 0.3}))
    hatched = [[patch.get_hatch() for patch in panel.patches].count("////") for panel in figure.axes[:4]]
    assert hatched == [16, 0, 0, 0]
    blank = [patch for patch in figure.axes[1].patches if patch.get_facecolor()[:3] == (1, 1, 1)]
    assert len(blank) == 15


def test_slower_and_faster_are_on_two_sides_of_white() -> None:
    figure = draw_heatmap(data({(0, 0, 1): -2.0, (0, 1, 1): 0.0, (0, 2, 1): 2.0}))
    slow, same, fast = (figure.axes[1].patches[at].get_facecolor() for at in range(3))
    assert slow[0] > slow[2] + 0.3
    assert fast[2] > fast[0] + 0.3
    assert min(same[:3]) > 0.9


@pytest.mark.parametrize("spread", [0.3, 1.2, 6.0])
def test_no_two_texts_overlap(spread: float) -> None:
    objectives = {cell: spread * (sum(cell) / 4.5 - 1) for cell in REACHABLE}
    figure = draw_heatmap(
        data(objectives, task="a task whose name is very long " * 4, target="cpu:threads=1,isa=x86-64-v3")
    )
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in texts(figure)]
    for name, box in boxes:
        assert box.x0 >= 0 and box.x1 <= figure.bbox.x1 and box.y0 >= 0 and box.y1 <= figure.bbox.y1, name
    overlaps = [(a, b) for (a, one), (b, other) in itertools.combinations(boxes, 2) if one.overlaps(other) and a != b]
    assert not overlaps


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_saves_by_the_ending(tmp_path: Path, ending: str) -> None:
    written = save_heatmap(data({(0, 0, 1): 0.3}), tmp_path / "new" / f"map.{ending}")
    head = written.read_bytes()[:200]
    assert {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending] in head
    assert [path.name for path in written.parent.iterdir()] == [written.name]


def test_a_name_is_no_formula(tmp_path: Path) -> None:
    save_heatmap(data({(0, 0, 1): 0.3}, task="price_$x^_$"), tmp_path / "map.png")


def test_a_name_in_letters_that_the_font_lacks_warns_of_nothing(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save_heatmap(data({(0, 0, 1): 0.3}, task="u ü 空"), tmp_path / "map.png")


def test_an_empty_archive_is_a_picture_too(tmp_path: Path) -> None:
    assert save_heatmap(data({}), tmp_path / "map.png").stat().st_size > 1000


def test_misuse_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\.png, \.svg, \.pdf"):
        save_heatmap(data({}), tmp_path / "map.jpeg2")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="another path"):
        save_heatmap(data({}), tmp_path / "file" / "map.png")
    with pytest.raises(ValueError, match="cells must lie in"):
        data({(0, 0, 4): 1.0})
