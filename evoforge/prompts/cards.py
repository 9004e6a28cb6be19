"""Technique cards: short pieces of craft, found by language, axis levels and bottleneck.

::

    ---
    language: [cpp]
    axes: {memory: [3]}            # levels that the technique helps to reach
    bottlenecks: [bandwidth]
    needs: [amx]                   # optional: words of the hardware's facts and tensors' dtypes it is useless without
    ---
    # Title

    text with a snippet
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evoforge.core import AXES, Cell
from evoforge.errors import UsageError
from evoforge.paths import data_dir
from evoforge.prompts.brief import BOTTLENECKS
from evoforge.prompts.scrub import one_line

__all__ = ["Card", "load_cards", "parse_card", "pick_cards"]


@dataclass(frozen=True)
class Card:
    """One technique. `axes` maps an axis to the levels that it helps to reach; `text` is Markdown."""

    name: str
    languages: tuple[str, ...]
    axes: Mapping[str, tuple[int, ...]]
    bottlenecks: tuple[str, ...]
    text: str
    needs: tuple[str, ...] = ()


class _Front(BaseModel):
    model_config = ConfigDict(extra="forbid")

    language: Annotated[list[Literal["cpp", "triton", "cuda"]], Field(min_length=1)]
    axes: dict[str, list[Annotated[int, Field(ge=0, le=9)]]] = {}
    bottlenecks: list[str] = []
    needs: list[str] = []


def load_cards(folder: Path | None = None) -> tuple[Card, ...]:
    """Every card of `folder` (default: those that ship), in name order.

    Raises:
        UsageError: a file is no card.
    """
    where = folder or data_dir("meta_prompts") / "techniques"
    return _load(str(where))


@functools.lru_cache(maxsize=8)
def _load(folder: str) -> tuple[Card, ...]:
    return tuple(parse_card(path.read_text(encoding="utf-8"), path.stem) for path in sorted(Path(folder).glob("*.md")))


def parse_card(text: str, name: str) -> Card:
    """One card from its file's text.

    Raises:
        UsageError: it has no front matter, or one that says something else; names the card and the key.
    """
    head, mark, body = text.partition("\n---\n")
    if not head.startswith("---\n") or not mark:
        raise UsageError(f"{name}.md: expected front matter between two lines '---'")
    try:
        front = _Front.model_validate(yaml.safe_load(head[4:]))
    except (yaml.YAMLError, ValidationError) as error:
        raise UsageError(f"{name}.md: expected the front matter of a technique card: {one_line(str(error))}") from None
    unknown = [one for one in front.bottlenecks if one not in BOTTLENECKS]
    if unknown:
        raise UsageError(f"{name}.md: expected bottlenecks out of {', '.join(BOTTLENECKS)}, got {unknown[0]!r}")
    if not body.strip().startswith("# "):
        raise UsageError(f"{name}.md: expected a line '# Title' after the front matter")
    # Headings of a card go below those of the message that shows it.
    shown = "\n".join(_deeper(body.strip().split("\n")))
    axes = {axis: tuple(levels) for axis, levels in front.axes.items()}
    return Card(name, tuple(front.language), axes, tuple(front.bottlenecks), shown, tuple(front.needs))


def pick_cards(
    cards: Sequence[Card],
    language: str,
    from_cell: Cell | None,
    to_cell: Cell | None,
    bottleneck: str | None,
    n: int,
    *,
    axes: Sequence[str] = AXES,
    features: AbstractSet[str] | None = None,
    turn: int = 0,
) -> tuple[Card, ...]:
    """At most `n` cards that help from one cell to another, or against a bottleneck, the best first.

    A level that has to change counts most, then the bottleneck, more so for cards about that one alone, then a level
    that has to be kept. Cards that fit nothing are left out; ties go by name, beginning further on with every `turn`.

    Args:
        axes: names of the cells' entries.
        features: words of the target's facts and of dtypes; a card's `needs` must each begin one. None: not asked.
        turn: how often the same was asked before: who asks again is told other techniques.
    """
    ranked: dict[float, list[Card]] = defaultdict(list)
    for card in sorted(cards, key=lambda card: card.name):
        if language not in card.languages or not _usable(card, features):
            continue
        score = 3.0 * (bottleneck is not None and bottleneck in card.bottlenecks)
        score += 0.5 * (card.bottlenecks == (bottleneck,))
        for index, axis in enumerate(axes):
            levels = card.axes.get(axis, ())
            if to_cell is not None and to_cell[index] in levels:
                score += 1 if from_cell is not None and from_cell[index] == to_cell[index] else 4
        if score:
            ranked[score].append(card)
    found: list[Card] = []
    for score in sorted(ranked, reverse=True):
        first = n * turn % len(ranked[score])
        found += ranked[score][first:] + ranked[score][:first]
    return tuple(found[:n])


def _usable(card: Card, features: AbstractSet[str] | None) -> bool:
    return features is None or all(any(word.startswith(need) for word in features) for need in card.needs)


def _deeper(lines: Sequence[str]) -> list[str]:
    fenced, out = False, []
    for line in lines:
        if line.startswith("```"):
            fenced = not fenced
        out.append(f"#{line}" if line.startswith("#") and not fenced else line)
    return out
