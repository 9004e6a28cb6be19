"""What won on similar tasks and on other targets, tried early: its decisions, printed for this task."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from evoforge.campaign._events import Narrator
from evoforge.campaign._queries import archive_of
from evoforge.campaign._setup import Setup, Trace
from evoforge.core import Candidate
from evoforge.emitters import Proposal
from evoforge.lowering.ir import Graph
from evoforge.storage import CampaignRow, Store

if TYPE_CHECKING:
    from evoforge.lowering.space import ScheduleSpace

__all__ = ["proposed", "with_traces"]

_SIMILAR = 0.6
_PER_CAMPAIGN = 2
_MOST = 4


def with_traces(setup: Setup, store: Store, row: CampaignRow, space: ScheduleSpace, narrator: Narrator) -> Setup:
    """`setup` with its traces, unless they were looked for before or the search has begun without."""
    if setup.traces is not None or store.last_ticket(row.name) is not None:
        return setup
    setup = replace(setup, traces=_find(store, row, setup, space))
    if setup.traces:
        origins = ", ".join(dict.fromkeys(trace.origin for trace in setup.traces))
        text = f"begins with what won on similar tasks, too: {origins}"
        narrator.tell("notice", text=text)
        setup = setup.with_notice(text)
    return setup


def _find(store: Store, row: CampaignRow, setup: Setup, space: ScheduleSpace) -> tuple[Trace, ...]:
    """Of the most similar campaigns of the store, the fastest elites that beat their baseline; four at most."""
    found: dict[str, Trace] = {}
    genes = space.genes()
    for other in _similar(store, row, setup):
        archive, candidates = archive_of(store, other)
        fast = [elite for elite in archive if elite.lower > 0 and candidates[elite.candidate].genome]
        for elite in sorted(fast, key=lambda elite: elite.rank, reverse=True)[:_PER_CAMPAIGN]:
            genome = candidates[elite.candidate].genome or {}
            kept = {gene: value for gene, value in genome.items() if value in genes.get(gene, ())}
            if len(kept) >= _SIMILAR * len(genome):
                found.setdefault(space.render(kept), Trace(other.name, kept, dict(elite.params)))
        if len(found) >= _MOST:
            break
    return tuple(found.values())[:_MOST]


def _similar(store: Store, row: CampaignRow, setup: Setup) -> list[CampaignRow]:
    """Campaigns on similar tasks, the most similar first.

    One of the same task on the same target is none, nor is who began with what such a one had found, at any
    remove: replicates stay independent.
    """
    mine = next(iter(setup.graphs.values()))
    scored = []
    replicates: set[str] = set()
    for other in store.campaigns():  # the oldest first: what one began with is of those before it
        known = _known(other)
        origins = {trace.origin for trace in known.traces or ()} if known else set()
        if (other.task.id, other.target.id) == (row.task.id, row.target.id) or origins & replicates:
            replicates.add(other.name)
        elif known is not None and (other.language, other.target.kind) == (row.language, row.target.kind):
            scored.append((_similarity(mine, next(iter(known.graphs.values()))), other))
    return [other for score, other in sorted(scored, key=lambda pair: (-pair[0], pair[1].name)) if score >= _SIMILAR]


def _known(other: CampaignRow) -> Setup | None:
    """What another campaign found out; None where it got no graphs, or another version of evoforge keeps them
    otherwise: whatever is in a store must not keep others from searching."""
    try:
        return Setup.from_json(other.setup) if other.setup.get("graphs") else None
    except (KeyError, TypeError, ValueError):
        return None


def _similarity(a: Graph, b: Graph) -> float:
    """How much two graphs have in common, at most 1: the share of operators that they share, as multisets
    (Jaccard), less a thirty-second for each doubling of the largest tensor."""
    ops, others = (Counter(stage.origin for stage in graph.stages) for graph in (a, b))
    either = (ops | others).total()
    shared = (ops & others).total() / either if either else 0.0
    sizes = [max((tensor.numel for tensor in graph.tensors.values()), default=1) for graph in (a, b)]
    return shared - abs(math.log2(max(sizes[0], 1) / max(sizes[1], 1))) / 32


def proposed(trace: Trace, space: ScheduleSpace) -> Proposal:
    """The kernel that a trace's decisions give here, at its parameters where they fit."""
    candidate = Candidate(
        "cpp", space.render(trace.genome), genome=trace.genome, operator="transfer",
        notes={"from": trace.origin},
    )  # fmt: skip
    return Proposal(candidate, "transfer", "transfer", params_hint=trace.params)
