"""What the archive holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["AddStatus", "Elite"]


class AddStatus(StrEnum):
    """What `Archive.add` did."""

    NEW = "NEW"
    IMPROVED = "IMPROVED"
    REJECTED = "REJECTED"


@dataclass(frozen=True)
class Elite:
    """A confirmed (candidate, parameter values) in a cell.

    `objective` is the point estimate in log2 speed-up; `lower` its one-sided 95% bound, which
    ranks. Ties go to the shorter source, then to the lower ticket.
    """

    candidate: str
    params: Mapping[str, int]
    cell: tuple[int, ...]
    objective: float
    lower: float
    source_length: int = 0
    ticket: int = 0

    @property
    def rank(self) -> tuple[float, int, int]:
        """Higher is better."""
        return (self.lower, -self.source_length, -self.ticket)
