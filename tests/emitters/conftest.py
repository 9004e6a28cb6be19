"""A schedule space small enough to reason about, and records around it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from evoforge.core import AddStatus, Candidate, Cell, Elite, MetaPrompt, Status, Strategy
from evoforge.emitters import Outcome, Proposal, Scores, SearchView

SOURCE = """// evoforge: param TILE = {tile} in {{8, 16, 32}}
#include <evoforge.h>
extern "C" int evo_run(const evo_call* call) {{
    const float* x = EVO_IN(float, 0);
    float* y = EVO_OUT(float, 0);
    for (int64_t i = 0; i < EVO_SIZE(in0, 0); i += TILE) {{ y[i] = x[i] * {tiling}{memory}{fusion}{salt}.0f; }}
    return 0;
}}
"""


class ToySpace:
    """A genome is its cell, a tile and a salt; level 3 of fusion cannot be reached."""

    salts = 50

    def sample(self, rng: np.random.Generator, strategy: Strategy) -> Mapping[str, Any]:
        return self._genome(tuple(int(rng.integers(size)) for size in (4, 4, 3)), rng)

    def mutate(self, genome: Mapping[str, Any], rng: np.random.Generator, strategy: Strategy) -> Mapping[str, Any]:
        axis = ("tiling", "memory", "fusion")[int(rng.integers(3))]
        top = 2 if axis == "fusion" else 3
        level = min(max(int(genome[axis]) + int(rng.choice([-1, 1])), 0), top)
        return {**genome, axis: level, "salt": int(rng.integers(self.salts))}

    def cross(
        self, a: Mapping[str, Any], b: Mapping[str, Any], rng: np.random.Generator, strategy: Strategy
    ) -> Mapping[str, Any]:
        return {key: (a if rng.random() < 0.5 else b)[key] for key in a}

    def climb(self, genome: Mapping[str, Any], scores: Scores, rng: np.random.Generator) -> Mapping[str, Any]:
        values = {"tiling": range(4), "memory": range(4), "fusion": range(3)}
        for key, levels in values.items():
            options = [{**genome, key: level} for level in levels]
            genome = options[int(np.argmax(scores(options)))]
        return genome

    def aim(
        self, cell: Cell, rng: np.random.Generator, strategy: Strategy, near: Mapping[str, Any] | None,
        params: Mapping[str, int] | None,
    ) -> tuple[Mapping[str, Any], Mapping[str, int]] | None:  # fmt: skip
        return (self._genome(cell, rng), params or {}) if cell[2] < 3 else None

    def implied_cell(self, genome: Mapping[str, Any], params: Mapping[str, int] | None = None) -> Cell:
        return (genome["tiling"], genome["memory"], genome["fusion"])

    def reachable(self) -> frozenset[Cell]:
        return frozenset(itertools.product(range(4), range(4), range(3)))

    def handicaps(self) -> list[tuple[Mapping[str, Any], float]]:
        return []

    def render(self, genome: Mapping[str, Any]) -> str:
        return SOURCE.format(**genome)

    def default(self) -> Mapping[str, Any]:
        return {"tiling": 1, "memory": 1, "fusion": 1, "tile": 16, "salt": 0}

    def _genome(self, cell: Cell, rng: np.random.Generator) -> Mapping[str, Any]:
        tiling, memory, fusion = cell
        tile, salt = int(rng.choice([8, 16, 32])), int(rng.integers(self.salts))
        return {"tiling": tiling, "memory": memory, "fusion": fusion, "tile": tile, "salt": salt}


@pytest.fixture
def space() -> ToySpace:
    return ToySpace()


@pytest.fixture
def prompt() -> MetaPrompt:
    return MetaPrompt("plain", 1, "cpp", Strategy(), {})


@pytest.fixture
def elite_at(space: ToySpace) -> Callable[..., tuple[Elite, Candidate]]:
    def make(cell: Cell, objective: float = 0.0, genome: bool = True) -> tuple[Elite, Candidate]:
        tiling, memory, fusion = cell
        body = {"tiling": tiling, "memory": memory, "fusion": fusion, "tile": 8, "salt": 999}
        candidate = Candidate("cpp", space.render(body), genome=body if genome else None)
        return Elite(candidate.id, {"TILE": 32}, cell, objective, objective - 0.1), candidate

    return make


@pytest.fixture
def view_of(space: ToySpace, elite_at: Callable[..., tuple[Elite, Candidate]]) -> Callable[..., SearchView]:
    def make(objectives: Mapping[Cell, float], **more: Any) -> SearchView:
        elites = {cell: elite_at(cell, value) for cell, value in objectives.items()}
        more.setdefault("reachable", space.reachable())
        return SearchView(space=space, elites=elites, **more)

    return make


@pytest.fixture
def outcome_of() -> Callable[..., Outcome]:
    def make(
        ticket: int,
        *,
        emitter: str = "mutate",
        meta_prompt: str = "plain@1",
        model: str | None = None,
        parents: tuple[Cell, ...] = (),
        cell: Cell | None = (1, 1, 1),
        gain: float = 0.0,
        cost_s: float = 1.0,
        status: Status = Status.CORRECT,
        placement: AddStatus | None = None,
        cost_usd: float = 0.0,
        target: Cell | None = None,
    ) -> Outcome:
        candidate = Candidate("cpp", f"int x{ticket};", meta_prompt=meta_prompt, model=model)
        proposal = Proposal(candidate, emitter, emitter, meta_prompt, parents, target)
        return Outcome(proposal, ticket, (status,), None, placement, gain, cost_s, cell, cost_usd)

    return make
