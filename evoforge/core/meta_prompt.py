"""An evolving text that asks for kernels, and the strategy that steers the generator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["MetaPrompt", "Strategy"]


@dataclass(frozen=True)
class Strategy:
    """What generator emitters read.

    `operators` weighs sample, mutate, cross, aim; `stress` weighs axis levels, keyed
    ``axis=level`` (``memory=3``); `priors` weighs schedule decisions and parameter values, keyed
    ``gene=value`` or ``PARAM=value``. Absent keys weigh 1; weights are non-negative.
    """

    operators: Mapping[str, float] = field(default_factory=dict)
    stress: Mapping[str, float] = field(default_factory=dict)
    priors: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for table in (self.operators, self.stress, self.priors):
            for key, weight in table.items():
                if not weight >= 0:
                    raise ValueError(f"strategy weight {key!r} must be zero or more, got {weight!r}")


@dataclass(frozen=True)
class MetaPrompt:
    """One version of a meta-prompt. `sections` maps a heading to its text, in file order."""

    name: str
    version: int
    language: str
    strategy: Strategy
    sections: Mapping[str, str]
    parents: tuple[str, ...] = ()

    @property
    def ref(self) -> str:
        return f"{self.name}@{self.version}"
