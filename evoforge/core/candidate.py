"""An immutable kernel and where it came from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from evoforge.core.parameters import ParameterSpace
from evoforge.errors import ParameterError

__all__ = ["Candidate"]


@dataclass(frozen=True)
class Candidate:
    """A kernel: one compilable source file with its declared parameters.

    `genome` is the schedule's decision trace as JSON, or None for text written by a model or a
    person. `meta_prompt` is ``name@version``. `operator` says how it was made: sample, mutate,
    cross, aim, transfer, import.
    """

    language: str
    source: str
    genome: Mapping[str, Any] | None = None
    parents: tuple[str, ...] = ()
    operator: str = "import"
    meta_prompt: str | None = None
    model: str | None = None
    licence: str = "Apache-2.0"
    notes: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def id(self) -> str:
        """sha256(language, source): the same text is the same candidate whoever wrote it."""
        return hashlib.sha256(f"{self.language}\0{self.source}".encode()).hexdigest()

    @property
    def short_id(self) -> str:
        return self.id[:12]

    @cached_property
    def space(self) -> ParameterSpace:
        """Parsed from the source's header.

        Raises:
            ParameterError: the header cannot be read.
        """
        return ParameterSpace.parse(self.source)

    @cached_property
    def declared(self) -> ParameterSpace:
        """The space, or one of no parameters: a stored text may have been read by an earlier, laxer version."""
        try:
            return self.space
        except ParameterError:
            return ParameterSpace()
