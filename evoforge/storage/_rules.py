"""What stores share beyond rows: conditions, refusals, and walks over lineages."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

from evoforge.core import Candidate, MetaPrompt, Status, Target, Task, storable
from evoforge.errors import StoreError
from evoforge.storage._base import Edge, EvaluationRow, Placement
from evoforge.storage._records import (
    Row,
    dump,
    evaluation_from_row,
    meta_prompt_from_row,
    now,
    params_hash,
    target_from_json,
    task_from_json,
)

__all__ = [
    "breadth_first",
    "campaign_changes",
    "conditions",
    "edge_rows",
    "ground_conditions",
    "no_ground",
    "no_ticket",
    "not_stored",
    "orphans",
    "read_evaluations",
    "refuse_other_meta_prompt",
    "refuse_other_proposal",
    "sum_seconds",
    "target_from_text",
    "task_from_text",
]


def task_from_text(body: str) -> Task:
    return task_from_json(json.loads(body))


def target_from_text(body: str) -> Target:
    return replace(target_from_json(json.loads(body)), ceilings={})


def conditions(**wanted: Any) -> Row:
    """Column → value for every condition that is given; enumerations as their stored text."""
    given = {column: value for column, value in wanted.items() if value is not None}
    return {column: value.value if isinstance(value, StrEnum) else value for column, value in given.items()}


def campaign_changes(
    state: str | None, stop_reason: str | None, wall_s: float | None, setup: Mapping[str, Any] | None,
    config: Mapping[str, Any] | None,
) -> Row:  # fmt: skip
    changes: Row = {"updated": now()}
    if state is not None:
        changes["state"] = state
    if stop_reason is not None:
        changes["stop_reason"] = storable(stop_reason) or None
    if wall_s is not None:
        changes["wall_s"] = wall_s
    if setup is not None:
        changes["setup"] = dump(dict(setup))
    if config is not None:
        changes["config"] = dump(dict(config))
    return changes


def edge_rows(candidate: Candidate) -> list[Row]:
    """One edge per parent, in their order; a kernel crossed with itself has two."""
    return [
        {"child": candidate.id, "parent": parent, "position": position}
        for position, parent in enumerate(candidate.parents)
    ]


def breadth_first(candidate: str, edges: Sequence[Edge]) -> list[Edge]:
    """The edges that lead from `candidate` to its ancestors, nearest generation first, each once."""
    parents: dict[str, list[Edge]] = {}
    for edge in sorted(edges, key=lambda edge: edge.position):
        siblings = parents.setdefault(edge.child, [])
        if all(edge.parent != other.parent for other in siblings):
            siblings.append(edge)
    found: list[Edge] = []
    queue, seen = [candidate], {candidate}
    for child in queue:  # grows while it is read
        for edge in parents.get(child, []):
            found.append(edge)
            if edge.parent not in seen:
                seen.add(edge.parent)
                queue.append(edge.parent)
    return found


def not_stored(what: str, key: str) -> str:
    return f"expected a stored {what}, got {key[:12]!r}, which this store does not have; record it first"


def refuse_other_proposal(stored: Mapping[str, Any], candidate: Candidate) -> None:
    if stored["candidate"] != candidate.id:
        raise StoreError(
            f"ticket {stored['ticket']} of campaign {stored['campaign']!r} proposed {stored['candidate'][:12]}, "
            f"not {candidate.short_id}; a ticket has one candidate"
        )


def refuse_other_meta_prompt(stored: Mapping[str, Any], meta_prompt: MetaPrompt) -> None:
    if meta_prompt_from_row(stored).meta_prompt != meta_prompt:
        raise StoreError(f"meta-prompt {meta_prompt.ref} is stored with another content; give it a new version")


def no_ticket(candidate: Candidate) -> str:
    return f"expected a ticket with the proposed candidate {candidate.short_id}, got None; pass the ticket that asked"


def ground_conditions(campaign: str, placement: Placement) -> Row:
    """Where to look for the evaluation that a placement rests on: to enter a cell takes a CORRECT one."""
    return conditions(
        status=Status.CORRECT if placement.action in ("NEW", "IMPROVED") else None,
        campaign=campaign,
        candidate=placement.candidate,
        params_hash=params_hash(placement.params),
        id=placement.evaluation,
    )


def no_ground(placement: Placement) -> str:
    return (
        f"a placement of {placement.candidate[:12]} in cell {placement.cell} needs an evaluation of the same candidate "
        "and parameter values in its campaign, found none; record the confirmation with it"
    )


def orphans(candidates: Collection[str], used: Collection[str], edges: Sequence[Edge]) -> set[str]:
    """The candidates that are neither used nor an ancestor of one that is: lineages stay whole."""
    parents: dict[str, set[str]] = {}
    for edge in edges:
        parents.setdefault(edge.child, set()).add(edge.parent)
    kept = set(used)
    fresh = set(used)
    while fresh:
        fresh = {parent for child in fresh for parent in parents.get(child, ())} - kept
        kept |= fresh
    return set(candidates) - kept


def read_evaluations(rows: Iterable[Mapping[str, Any]]) -> list[EvaluationRow]:
    """Raises StoreError for a row that is damaged."""
    return [_evaluation(row) for row in rows]


def sum_seconds(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """What evaluations took, by stage. Raises as `read_evaluations`."""
    total: dict[str, float] = {}
    for row in rows:
        for stage, seconds in _evaluation(row).evaluation.seconds.items():
            total[stage] = total.get(stage, 0.0) + seconds
    return total


def _evaluation(row: Mapping[str, Any]) -> EvaluationRow:
    try:
        return evaluation_from_row(row)
    except (ValueError, TypeError, KeyError) as error:
        raise StoreError(f"evaluation {row['id']} is damaged ({error}); run `evoforge db check`") from error
