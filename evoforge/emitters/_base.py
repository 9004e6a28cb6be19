"""What an emitter reads, proposes and learns from.

An emitter is asked under a ticket and may be told the ticket's outcome late, in any order, or
never; one that learns keeps only sums that do not depend on the order of `tell`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from evoforge.core import (
    AXES,
    AddStatus,
    Candidate,
    Cell,
    Elite,
    Evaluation,
    MetaPrompt,
    ParameterSpace,
    Params,
    Status,
    Strategy,
)
from evoforge.prompts import TaskBrief

__all__ = [
    "RANKED",
    "RETRIES",
    "Draft",
    "Emitter",
    "Genome",
    "Memory",
    "Outcome",
    "Proposal",
    "Scores",
    "SearchView",
    "Space",
    "distance",
    "evolvable",
    "first_new",
]

RETRIES = 16
"""Genomes tried before an emitter gives up on finding a kernel that was not tried yet."""

RANKED = 4
"""Drafts that are ranked, where there are scores: rendering one takes up to 20 ms, in which nothing is measured."""

_DRAWN = 8  # settings of a ranked draft that are drawn, and as many times its first with some values changed
_CHANGED = 0.4  # share of the values changed in one of these

Genome = Mapping[str, Any]

Scores = Callable[[Sequence[Genome]], npt.NDArray[np.float64]]
"""What is expected of each of some drafts: decisions, and values of parameters where known. Higher is better."""


class Space(Protocol):
    """The schedule space of one task on one target, as emitters use it."""

    def sample(self, rng: np.random.Generator, strategy: Strategy) -> Genome:
        """A fresh genome."""

    def mutate(self, genome: Genome, rng: np.random.Generator, strategy: Strategy) -> Genome:
        """A neighbour of `genome`."""

    def cross(self, a: Genome, b: Genome, rng: np.random.Generator, strategy: Strategy) -> Genome:
        """Decisions of both parents, mixed."""

    def climb(self, genome: Genome, scores: Scores, rng: np.random.Generator) -> Genome:
        """`genome` with every decision as `scores` likes it best, beside the others."""

    def aim(
        self, cell: Cell, rng: np.random.Generator, strategy: Strategy, near: Genome | None, params: Params | None
    ) -> tuple[Genome, Params] | None:
        """A genome, and values of its parameters, that imply `cell`, taking what they can from `near` at `params`.

        None if none was found.
        """

    def implied_cell(self, genome: Genome, params: Params | None = None) -> Cell:
        """The cell that the decisions imply, before anything is built."""

    def reachable(self) -> frozenset[Cell]:
        """Every cell that some genome implies."""

    def handicaps(self) -> Sequence[tuple[Genome, float]]:
        """Decisions, and the log2 speed-up that they are known to cost (negative) before anything is measured."""

    def render(self, genome: Genome) -> str:
        """The source, parameter header included."""

    def default(self) -> Genome:
        """A safe, plain good schedule."""


@dataclass(frozen=True)
class Proposal:
    """A kernel that an emitter wants judged.

    `parent_cells` are the cells its parents were elites of, in the order of `candidate.parents`.
    `target_cell` is where the emitter wants to land (None: anywhere). `params_hint` are parameter
    values to begin with, mostly those that won on the first parent; they may name parameters that this kernel
    does not have.
    `cost_usd` was paid for it.
    """

    candidate: Candidate
    operator: str
    emitter: str
    meta_prompt: str | None = None
    parent_cells: tuple[Cell, ...] = ()
    target_cell: Cell | None = None
    params_hint: Params = field(default_factory=dict)
    cost_usd: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """What became of a proposal.

    `statuses` are those of all its trials, in order, or of what refuted one; `evaluation` is its best trial (None
    if none was correct); `placement` what the archive did (None if nothing was confirmed); `gain` the
    increase of the QD score, zero or more; `cost_s` recorded seconds of every process that worked on
    it; `cost_usd` what was paid for it; `cell` where it landed (None: nowhere).
    """

    proposal: Proposal
    ticket: int
    statuses: tuple[Status, ...]
    evaluation: Evaluation | None = None
    placement: AddStatus | None = None
    gain: float = 0.0
    cost_s: float = 0.0
    cell: Cell | None = None
    cost_usd: float = 0.0

    def __post_init__(self) -> None:
        if not self.gain >= 0 or not self.cost_s >= 0 or not self.cost_usd >= 0:
            raise ValueError(
                f"an outcome's gain and costs must be zero or more, got gain {self.gain!r}, "
                f"{self.cost_s!r} s, {self.cost_usd!r} USD"
            )

    @property
    def valid(self) -> bool:
        """Whether any trial computed the right thing."""
        return any(status.correct for status in self.statuses)


class Memory(Protocol):
    """What became of earlier candidates, for emitters that tell a story."""

    def candidate(self, candidate: str) -> Candidate | None:
        """The candidate with that id, if this campaign knows it."""

    def trial(self, candidate: str, params: Params) -> Evaluation | None:
        """Its trial at these values."""

    def known(self, candidate: str, params: Params) -> bool:
        """Whether it needs no trial at these values: it had one, or compiled to what another candidate had."""

    def best_trial(self, candidate: str) -> Evaluation | None:
        """Its correct trial with the highest objective."""

    def last_trial(self, candidate: str) -> Evaluation | None:
        """Its latest trial, however it ended."""

    def timed(self, candidate: str, params: Params) -> Evaluation | None:
        """Its trial at these values, with the times of its confirmations where it has some."""

    def claim(self, candidate: str) -> Elite | None:
        """What is claimed of it at the values that rank highest; None where it was not confirmed."""

    def children(self, candidate: str) -> Sequence[Candidate]:
        """What was made from it, in the order of tickets."""

    def asked(self, operator: str, candidate: str) -> int:
        """How often `operator` asked a model for something made from it, whatever came back."""

    def failed(self) -> Sequence[Candidate]:
        """Those without a correct trial, in the order of tickets."""


@dataclass(frozen=True)
class SearchView:
    """All that an emitter may read: a snapshot of the archive and of what was tried.

    `attempts` counts per cell the proposals that aimed at it; `tried` holds ids of candidates. With
    `scores` an emitter proposes the best of its drafts, each at the best of its parent's values, `settings` and drawn
    ones; without it the first that is new. Drafts that are `hopeless` are left out. With `again` a kernel that was
    tried may come again, at values that were not. `twin` is the id of a known candidate of the same code, or None.
    What this round `proposed` already does not come twice. `task` and `memory` are for emitters that tell a story;
    `asked` holds ids of the parents of assignments still out, per operator.
    """

    space: Space
    elites: Mapping[Cell, tuple[Elite, Candidate]] = field(default_factory=dict)
    reachable: frozenset[Cell] = frozenset()
    tried: AbstractSet[str] = frozenset()
    attempts: Mapping[Cell, int] = field(default_factory=dict)
    settings: Sequence[Params] = ()
    axes: tuple[str, ...] = AXES
    scores: Scores | None = None
    hopeless: Callable[[Genome], bool] = lambda genome: False
    again: bool = False
    twin: Callable[[Candidate], str | None] = lambda candidate: None
    proposed: AbstractSet[str] = frozenset()
    task: TaskBrief | None = None
    memory: Memory | None = None
    asked: AbstractSet[tuple[str, str]] = frozenset()


@runtime_checkable
class Emitter(Protocol):
    """A source of candidates: generator or model."""

    @property
    def name(self) -> str:
        """Names it to the bandit; equals the operator for generator emitters."""

    def ready(self, view: SearchView) -> bool:
        """Whether `ask` can succeed at all: an operator on two parents needs two elites."""

    def ask(self, view: SearchView, meta_prompt: MetaPrompt, rng: np.random.Generator) -> Proposal | None:
        """A proposal that is not in `view.tried`, or None when none was found."""

    def tell(self, outcome: Outcome) -> None:
        """Learns from an outcome of a proposal of its own; repeated tickets count once."""


def distance(a: Cell, b: Cell) -> int:
    """Steps along the axes between two cells (L1)."""
    return sum(abs(x - y) for x, y in zip(a, b, strict=True))


def evolvable(view: SearchView) -> list[Cell]:
    """Sorted cells whose elite has a genome; imported kernels have none and cannot be mutated."""
    return sorted(cell for cell, (_, candidate) in view.elites.items() if candidate.genome is not None)


@dataclass(frozen=True)
class Draft:
    """A genome before it is rendered, with everything else a proposal needs.

    `params` None: those of the first parent.
    """

    genome: Genome
    parent_cells: tuple[Cell, ...] = ()
    target_cell: Cell | None = None
    params: Params | None = None


def first_new(
    name: str, drafts: Iterator[Draft | None], view: SearchView, meta_prompt: MetaPrompt, rng: np.random.Generator
) -> Proposal | None:
    """The first of at most `RETRIES` drafts whose rendered source is not known yet.

    With `view.scores` the best of the first `RANKED` of them, or of all where kernels may come again.

    None in `drafts` is an attempt that found nothing. Operators and emitters of the generator
    family share one name. Of equal scores the first counts.
    """
    found: dict[str, tuple[float, Proposal]] = {}
    for _, draft in zip(range(RETRIES), drafts, strict=False):
        if draft is None or view.hopeless(draft.genome):
            continue
        parents = [view.elites[cell] for cell in draft.parent_cells]
        candidate = Candidate(
            language="cpp",
            source=view.space.render(draft.genome),
            genome=draft.genome,
            parents=tuple(parent.id for _, parent in parents),
            operator=name,
            meta_prompt=meta_prompt.ref,
            licence="Apache-2.0",
        )
        twin = candidate.id if candidate.id in view.tried else view.twin(candidate)
        if twin in view.proposed:
            continue
        if twin is not None:
            known = view.memory.candidate(twin) if view.again and view.scores and view.memory else None
            if known is None or known.genome is None or twin in candidate.parents:
                continue
            candidate = replace(candidate, source=known.source, genome=known.genome)
        if candidate.id in found:
            continue
        proposal = Proposal(
            candidate=candidate,
            operator=name,
            emitter=name,
            meta_prompt=meta_prompt.ref,
            parent_cells=draft.parent_cells,
            target_cell=draft.target_cell,
            params_hint=dict(parents[0][0].params if parents and draft.params is None else draft.params or {}),
        )
        if view.scores is None:
            return proposal
        space, hint = candidate.space, proposal.params_hint
        options = [space.inherit(hint)]
        if draft.params is None:
            options += [space.inherit(values) for values in view.settings] + _settings_near(space, options[0], rng)
        if twin is not None and view.memory is not None:
            options = [values for values in options if not view.memory.known(twin, values)]
            if not options:
                continue
        scores = view.scores([{**(candidate.genome or {}), **values} for values in options])
        best = int(np.argmax(scores))
        found[candidate.id] = (float(scores[best]), replace(proposal, params_hint=options[best]))
        if len(found) == (RETRIES if view.again else RANKED):
            break
    return max(found.values(), key=lambda pair: pair[0])[1] if found else None


def _settings_near(space: ParameterSpace, values: Params, rng: np.random.Generator) -> list[dict[str, int]]:
    """Settings to choose from: some drawn evenly, and as many that change some of `values`."""
    if not space.parameters:
        return []
    drawn = [space.draw(rng) for _ in range(_DRAWN)]
    changed = [
        space.inherit({name: one[name] if rng.random() < _CHANGED else value for name, value in values.items()})
        for one in drawn
    ]
    return drawn + changed
