"""What all pictures have in common: a figure of their own, colours that colour-blind eyes tell apart."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from evoforge.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

__all__ = ["FORMATS", "INK", "MUTED", "check_format", "diverging", "ink_on", "new_figure", "save"]

INK = "#222222"
MUTED = "#777777"
FORMATS = (".png", ".svg", ".pdf")
_DPI = 144


def new_figure(width_in: float, height_in: float) -> Figure:
    """A figure outside pyplot's global state: nothing to close, no display, safe in threads."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_in, height_in), dpi=_DPI, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def diverging() -> LinearSegmentedColormap:
    """Orange (slower) over near-white (the same) to blue (faster): distinct under all three colour blindnesses."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(
        "evoforge", ["#9a4a00", "#e08a3c", "#f6d9b8", "#f7f7f5", "#bcd7ea", "#4a90c2", "#0b3c6f"]
    )


def ink_on(colour: tuple[float, float, float, float]) -> str:
    """Black or white text, whichever reads better on `colour` (relative luminance, WCAG)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3]]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return INK if luminance > 0.22 else "white"


def check_format(path: Path) -> None:
    """Raises UsageError unless the file's ending names a format that can be written."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"expected a file that ends in {', '.join(FORMATS)}, got {path.name!r}; rename it")


def save(figure: Figure, path: Path) -> Path:
    """Writes `figure` whole or not at all, making the folder if need be.

    Raises:
        UsageError: an unknown ending, or a place that cannot be written.
    """
    check_format(path)
    kind = path.suffix.lower().removeprefix(".")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".evoforge-", dir=path.parent) as folder:
            draft = Path(folder) / path.name
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Glyph .* missing from")  # a name in other letters: boxes
                figure.savefig(draft, format=kind, metadata={"Date": None} if kind == "svg" else None)
            draft.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write the picture to {path}: {error.strerror}; give another path with -o") from error
    return path
