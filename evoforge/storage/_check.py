"""The invariants of a store, over its raw rows: the same for every store.

The database enforces most of them when rows are written; this finds what a damaged disk, an edit by
hand or a bug left behind.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from evoforge.core import Status
from evoforge.storage._base import ACTIONS
from evoforge.storage._call_records import call_from_row, ticket_from_row
from evoforge.storage._owner import Owner
from evoforge.storage._records import (
    campaign_from_row,
    candidate_from_row,
    evaluation_from_row,
    meta_prompt_from_row,
    params_hash,
    placement_from_row,
    proposal_from_row,
    target_from_json,
    task_from_json,
)

__all__ = ["REFERENCES", "TABLES", "find_problems"]

TABLES = (
    "tasks",
    "targets",
    "campaigns",
    "candidates",
    "parent_edges",
    "proposals",
    "evaluations",
    "placements",
    "meta_prompts",
    "llm_calls",
    "tickets",
)
"""Parents before children: rows can be copied in this order and deleted in the reverse one."""

REFERENCES: tuple[tuple[str, str, str, str], ...] = (
    ("campaigns", "task", "tasks", "id"),
    ("campaigns", "target", "targets", "id"),
    ("parent_edges", "child", "candidates", "id"),
    ("parent_edges", "parent", "candidates", "id"),
    ("proposals", "campaign", "campaigns", "name"),
    ("proposals", "candidate", "candidates", "id"),
    ("evaluations", "campaign", "campaigns", "name"),
    ("evaluations", "candidate", "candidates", "id"),
    ("evaluations", "task", "tasks", "id"),
    ("evaluations", "target", "targets", "id"),
    ("placements", "campaign", "campaigns", "name"),
    ("placements", "candidate", "candidates", "id"),
    ("placements", "evaluation", "evaluations", "id"),
    ("meta_prompts", "campaign", "campaigns", "name"),
    ("llm_calls", "campaign", "campaigns", "name"),
    ("tickets", "campaign", "campaigns", "name"),
)
"""(table, column) refers to (table, column)."""

_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError)
"""What reading a damaged row raises: JSON that is cut short, or another value than the one that was written."""

_Read = Callable[[str], Iterable[Mapping[str, Any]]]


def find_problems(read: _Read) -> list[str]:
    """A sentence per broken invariant. `read` gives the rows of a table, in stored order."""
    return [
        *_references(read),
        *_contents(read),
        *_campaigns(read),
        *_records(read, "meta_prompts", "meta-prompt {name}@{version} of campaign {campaign!r}", meta_prompt_from_row),
        *_records(
            read, "proposals", "the proposal of ticket {ticket} of campaign {campaign!r}", proposal_from_row,
            lambda proposal: proposal.parents,
        ),
        *_evaluations(read),
        *_placements(read),
        *_records(read, "llm_calls", "model call {id}", call_from_row),
        *_records(
            read, "tickets", "ticket {ticket} of campaign {campaign!r}", ticket_from_row,
            lambda ticket: (*ticket.parents, *ticket.exemplars),
        ),
    ]  # fmt: skip


def _references(read: _Read) -> Iterator[str]:
    keys = {(table, column): {row[column] for row in read(table)} for table, column in {ref[2:] for ref in REFERENCES}}
    for table in TABLES:
        outgoing = [ref for ref in REFERENCES if ref[0] == table]
        if not outgoing:
            continue
        for row in read(table):
            for _, column, other, key in outgoing:
                if row[column] not in keys[other, key]:
                    yield f"a row of {table} refers to {other} {row[column]!r}, which is not stored"


def _contents(read: _Read) -> Iterator[str]:
    """Ids are hashes of what they name."""

    def made(table: str, row: Mapping[str, Any]) -> Any:
        if table == "candidates":
            return candidate_from_row(row, ())
        return (task_from_json if table == "tasks" else target_from_json)(json.loads(row["body"]))

    for table in ("candidates", "tasks", "targets"):
        for row in read(table):
            name = f"{table[:-1]} {row['id'][:12]}"
            try:
                if made(table, row).id != row["id"]:
                    yield f"the content of {name} is not the one its id was made from"
            except _UNREADABLE as error:
                yield f"{name} cannot be read: {error}"


def _campaigns(read: _Read) -> Iterator[str]:
    bodies = {table: {row["id"]: row["body"] for row in read(table)} for table in ("tasks", "targets")}
    for row in read("campaigns"):
        task, target = bodies["tasks"].get(row["task"]), bodies["targets"].get(row["target"])
        if task is None or target is None:
            continue  # already reported as a broken reference
        name = f"campaign {row['name']!r}"
        try:
            campaign = campaign_from_row(row, task, target)
            if row["lock_owner"] is not None:
                Owner.from_text(row["lock_owner"])
        except _UNREADABLE as error:
            yield f"{name} cannot be read: {error}"
            continue
        for column in ("config", "descriptor", "setup"):
            if not isinstance(getattr(campaign, column), dict):
                yield f"{name} cannot be read: its {column} is no mapping"


def _records(
    read: _Read, table: str, name: str, record: Callable[[Mapping[str, Any]], Any],
    listed: Callable[[Any], Iterable[str]] = lambda _: (),
) -> Iterator[str]:  # fmt: skip
    """Every row can be read, and the candidates that it lists are stored; `name` is a format of its columns."""
    known = {row["id"] for row in read("candidates")}
    for row in read(table):
        try:
            candidates = listed(record(row))
        except _UNREADABLE as error:
            yield f"{name.format_map(row)} cannot be read: {error}"
            continue
        for candidate in candidates:
            if candidate not in known:
                yield f"{name.format_map(row)} refers to candidates {candidate!r}, which is not stored"


def _evaluations(read: _Read) -> Iterator[str]:
    for row in read("evaluations"):
        name = f"evaluation {row['id']}"
        try:
            evaluation = evaluation_from_row(row).evaluation
        except _UNREADABLE as error:
            yield f"{name} cannot be read: {error}"
            continue
        if row["objective"] != evaluation.objective or row["latency_ms"] != evaluation.latency_ms:
            yield f"{name} says objective {row['objective']}, its timings say {evaluation.objective}"
        if row["params_hash"] != params_hash(evaluation.params):
            yield f"{name} is filed under other parameter values than its own"


def _placements(read: _Read) -> Iterator[str]:
    rows = {
        row["id"]: (row["campaign"], row["candidate"], row["params_hash"], row["status"]) for row in read("evaluations")
    }
    for row in read("placements"):
        name, ground = f"placement {row['id']}", rows.get(row["evaluation"])
        if row["action"] not in ACTIONS:
            yield f"{name} has the unknown action {row['action']!r}"
            continue
        try:
            placement = placement_from_row(row).placement
            point = (row["campaign"], placement.candidate, params_hash(placement.params))
        except _UNREADABLE as error:
            yield f"{name} cannot be read: {error}"
            continue
        if ground is None:
            continue  # already reported as a broken reference
        if ground[:3] != point:
            yield f"{name} rests on evaluation {row['evaluation']}, which measured something else"
        elif row["action"] in ("NEW", "IMPROVED") and ground[3] != Status.CORRECT:
            yield f"{name} put a kernel into cell {row['cell']} on evaluation {row['evaluation']}, which is {ground[3]}"
