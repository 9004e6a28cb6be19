"""What a model, an agent or a person is asked for, before there is an answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from evoforge.core import AXES, Candidate, Cell, Evaluation, MetaPrompt, Params
from evoforge.emitters._base import Memory, Outcome, Proposal, SearchView
from evoforge.prompts import Answer, Attempt, Brief, KernelBrief

__all__ = [
    "Assignment",
    "ModelEmitter",
    "attempts_from",
    "bottleneck",
    "elite_brief",
    "exemplars",
    "hints",
    "inherited_licence",
    "levels",
    "pick_elite",
    "turn",
]

_UNIFORM = 0.3  # share of parents drawn uniformly; the others by how fast they are
_TEMPERATURE = 0.5  # log2: an elite so much slower is drawn 1/e as often
_ATTEMPTS = 8  # what was tried from here: the latest
_GOOD, _BAD = 2, 2  # exemplars
_NEAR_BOUND = 0.85
_WAITS = 0.4  # of what the machine could do
_SHORT_MS = 0.05
_LEVELS: Mapping[str, tuple[str, ...]] = {
    "tiling": ("none", "one level (register or vector block)", "two levels (a cache tile)", "three or more"),
    "memory": ("scalar or strided", "contiguous vectors", "staged or prefetched", "streaming stores"),
    "fusion": (
        "every intermediate stored",
        "some intermediates stored",
        "none stored, but inputs fetched again",
        "every input fetched once",
    ),
}


@dataclass(frozen=True)
class Assignment:
    """A brief with what the search needs to know of it.

    `target_cell` is where the answer should land (None: anywhere); `params_hint` the parameter values
    that won on the first parent.
    """

    brief: Brief
    emitter: str
    parent_cells: tuple[Cell, ...] = ()
    target_cell: Cell | None = None
    params_hint: Params = field(default_factory=dict)

    @property
    def parents(self) -> tuple[Candidate, ...]:
        return tuple(parent.candidate for parent in self.brief.parents)

    def proposal(
        self, answer: Answer, *, meta_prompt: str | None, model: str | None, exemplars: Sequence[str] = (),
        usd: float = 0.0,
    ) -> Proposal:  # fmt: skip
        """The answer as a candidate.

        It has the licence that its parents hand down (`inherited_licence`).
        """
        notes: dict[str, object] = {"hypothesis": answer.hypothesis, "exemplars": list(exemplars)}
        if self.brief.bottleneck:
            notes["bottleneck"] = self.brief.bottleneck
        candidate = Candidate(
            language=self.brief.task.language,
            source=answer.source,
            parents=tuple(parent.id for parent in self.parents),
            operator=self.brief.operator,
            meta_prompt=meta_prompt,
            model=model,
            licence=inherited_licence(self.parents),
            notes=notes,
        )
        return Proposal(
            candidate=candidate,
            operator=self.brief.operator,
            emitter=self.emitter,
            meta_prompt=meta_prompt,
            parent_cells=self.parent_cells,
            target_cell=self.target_cell,
            params_hint=self.params_hint,
            cost_usd=usd,
        )


@runtime_checkable
class ModelEmitter(Protocol):
    """A source of assignments; a model, or whoever asked, answers them."""

    @property
    def name(self) -> str:
        """Names it to the bandit, and its operator."""

    def ready(self, view: SearchView) -> bool:
        """Whether `assign` can succeed at all."""

    def assign(self, view: SearchView, meta_prompt: MetaPrompt, rng: np.random.Generator) -> Assignment | None:
        """What to ask for; None when there is nothing. `view.task` and `view.memory` are set."""

    def tell(self, outcome: Outcome) -> None:
        """Learns from an outcome of its own; repeated tickets count once."""


def inherited_licence(parents: Sequence[Candidate]) -> str:
    """That of the first parent that is not under evoforge's own, since a child may hold its text."""
    own = Candidate("", "").licence
    return next((parent.licence for parent in parents if parent.licence != own), own)


def pick_elite(view: SearchView, rng: np.random.Generator, cells: Sequence[Cell] | None = None) -> Cell | None:
    """A cell whose elite becomes a parent: some uniformly, most the more often the faster they are.

    `cells` narrows the choice; None where there is none. Unlike the generator's parents these need no
    genome.
    """
    known = sorted(view.elites if cells is None else cells)
    if not known:
        return None
    if rng.random() < _UNIFORM:
        return known[int(rng.integers(len(known)))]
    heights = np.array([view.elites[cell][0].objective for cell in known])
    weights = np.exp((heights - heights.max()) / _TEMPERATURE)
    return known[int(rng.choice(len(known), p=weights / weights.sum()))]


def elite_brief(view: SearchView, cell: Cell) -> KernelBrief:
    """All that is known of the elite of `cell`."""
    assert view.memory is not None
    elite, candidate = view.elites[cell]
    return KernelBrief(
        candidate=candidate,
        evaluation=view.memory.timed(candidate.id, elite.params),
        lower=elite.lower,
        cell=cell,
        hypothesis=str(candidate.notes.get("hypothesis", "")),
        outcome=f"{2**elite.objective:.2f}x the baseline, over all processes that confirmed it",
    )


def attempts_from(view: SearchView, candidate: Candidate) -> tuple[Attempt, ...]:
    """What was tried from `candidate` and how it ended, the latest last; what had no author first makes room."""
    assert view.memory is not None
    found = []
    children = view.memory.children(candidate.id)
    written = [at for at, child in enumerate(children) if child.genome is None][-_ATTEMPTS:]
    others = [at for at, child in enumerate(children) if child.genome is not None]
    room = _ATTEMPTS - len(written)
    for at in sorted([*written, *(others[-room:] if room else ())]):
        child = children[at]
        best = view.memory.best_trial(child.id) or view.memory.last_trial(child.id)
        if best is None:
            continue
        over_parent, confirmed = _over_parent(view.memory, candidate, child, best)
        found.append(
            Attempt(
                operator=child.operator,
                hypothesis=str(child.notes.get("hypothesis", "")),
                status=str(best.status),
                objective=best.objective,
                over_parent=over_parent,
                reason=best.reason,
                confirmed=confirmed,
            )
        )
    return tuple(found)


def _over_parent(memory: Memory, parent: Candidate, child: Candidate, best: Evaluation) -> tuple[float | None, bool]:
    """log2 of how much faster a child is, and whether that is confirmed.

    Single trials are compared by their times: a baseline may have had another speed when the other one ran.
    """
    claims = memory.claim(parent.id), memory.claim(child.id)
    if claims[0] and claims[1]:
        return claims[1].objective - claims[0].objective, True
    own = memory.best_trial(parent.id)
    if own is None or own.latency_ms is None or best.latency_ms is None:
        return None, False
    return math.log2(own.latency_ms / best.latency_ms), False


def exemplars(
    view: SearchView, rng: np.random.Generator, without: Sequence[Candidate] = ()
) -> tuple[tuple[KernelBrief, ...], tuple[KernelBrief, ...]]:
    """(good, bad): the best elite and another one, and what failed lately, each with its verdict."""
    assert view.memory is not None
    left_out = {candidate.id for candidate in without}
    ranked = sorted(view.elites, key=lambda cell: (-view.elites[cell][0].objective, cell))
    cells = [cell for cell in ranked if view.elites[cell][1].id not in left_out]
    good = cells[:1]
    if len(cells) > 1:
        good += [cells[1 + int(rng.integers(len(cells) - 1))]][: _GOOD - 1]
    bad: list[KernelBrief] = []
    for candidate in reversed(view.memory.failed()):
        row = view.memory.last_trial(candidate.id)
        if candidate.id not in left_out and row is not None and len(bad) < _BAD:
            bad.append(KernelBrief(candidate, row, None, None, str(candidate.notes.get("hypothesis", "")), row.reason))
    return tuple(elite_brief(view, cell) for cell in good), tuple(bad)


def bottleneck(cell: Cell, evaluation: Evaluation | None, *, busy: bool = False) -> str | None:
    """What most likely holds a kernel back, one of `evoforge.prompts.BOTTLENECKS`: one thing for one change.

    Whole tensors stored and read again cost ``bandwidth``, inputs fetched more than once ``cache``, scalar
    loads ``compute``, calls of microseconds ``overhead``. What fetches everything once, by vectors, and
    still takes far longer than the machine needs waits: ``latency``; where arithmetic is what there is to do (`busy`)
    it is ``compute``. None within 15% of the bound. For the default descriptor's axes (tiling, memory, fusion).
    """
    if len(cell) != len(AXES):
        return None
    _, memory, fusion = cell
    if fusion < 2:
        return "bandwidth"
    if fusion == 2:
        return "cache"
    if memory == 0:
        return "compute"
    fraction, latency = (evaluation.roofline_fraction, evaluation.latency_ms) if evaluation else (None, None)
    if fraction is not None and fraction >= _NEAR_BOUND:
        return None
    if latency is not None and latency < _SHORT_MS:
        return "overhead"
    if busy:
        return "compute"
    return "latency" if fraction is not None and fraction < _WAITS else "bandwidth"


def turn(view: SearchView, operator: str, parent: Candidate) -> int:
    """How often `operator` asked for something made from `parent` before."""
    return view.memory.asked(operator, parent.id) if view.memory is not None else 0


def levels(view: SearchView) -> Mapping[str, tuple[str, ...]]:
    """The axes of the view with the names of their levels."""
    return {axis: _LEVELS.get(axis, ()) for axis in view.axes}


def hints(view: SearchView, cell: Cell) -> Mapping[str, int]:
    """The parameter values of the elite of `cell`."""
    return dict(view.elites[cell][0].params)
