"""Fused loop nests: what the planner makes of regions, and what printers print.

A *pass* is one sweep over the inner axes; what needs the result of a reduction waits for the next pass.
Consecutive passes form a *nest*, one parallel loop over the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from evoforge.lowering.domain import Node

if TYPE_CHECKING:
    from evoforge.lowering.chain import Chain
    from evoforge.lowering.contraction import Contraction

__all__ = ["Nest", "Pass", "Plan"]


@dataclass
class Pass:
    """One sweep over the inner axes.

    `heads`: maps over rows alone that are computed before it; `maps`: maps inside it, in order;
    `stores`: (tensor, "memory" or "row") of maps it writes; `row_maps`, `row_stores`: what happens per
    row after it; `reads`: how each tensor that is not an input is read: local, row or memory.
    """

    heads: list[Node] = field(default_factory=list)
    maps: list[Node] = field(default_factory=list)
    reduces: list[Node] = field(default_factory=list)
    stores: list[tuple[str, str]] = field(default_factory=list)
    row_maps: list[Node] = field(default_factory=list)
    row_stores: list[str] = field(default_factory=list)
    reads: dict[str, str] = field(default_factory=dict)

    @property
    def nodes(self) -> list[Node]:
        """What runs inside the sweep."""
        return [*self.maps, *self.reduces]


@dataclass
class Nest:
    """Passes that share one loop over `rows` (axes, outermost first).

    `lane` is the axis that vectors lie along; `columns` says that it is one of the rows' axes, so that
    every vector lane is a row of its own and the inner axes run serially. `contraction` is set where
    the schedule wants sums of products cut into register blocks, with the operands that `packed` names. Results
    of neighbours along `lane` are so many elements apart, `interleaved` with as many vectors that are computed with
    them. Neighbours of one `chain` take turns on blocks of rows.
    """

    rows: tuple[str, ...]
    passes: list[Pass]
    lane: str = ""
    columns: bool = False
    chunked: bool = False
    region: int = 0
    contraction: Contraction | None = None
    packed: str = ""
    interleaved: int = 1
    chain: Chain | None = None

    @property
    def reduces(self) -> bool:
        return any(one.reduces for one in self.passes)

    @property
    def scans(self) -> bool:
        return any(node.kind == "scan" for one in self.passes for node in one.reduces)


@dataclass
class Plan:
    """All nests in order; which temporaries lie in the workspace whole and which as one row."""

    nests: list[Nest]
    memory: list[str]
    buffers: list[str]
    threads: int
    kept: frozenset[str] = frozenset()
