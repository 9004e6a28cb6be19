"""The SQL statements, each inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, delete, insert, select
from sqlalchemy.dialects import postgresql, sqlite

from evoforge.core import Candidate, Cell, Evaluation
from evoforge.errors import StoreError
from evoforge.storage import _call_records, _names, _records, _rules
from evoforge.storage._base import CampaignRow, Edge, Placement
from evoforge.storage._schema import metadata

__all__ = [
    "CHUNK",
    "TABLES",
    "by_age",
    "campaign",
    "campaign_names",
    "campaign_query",
    "delete_orphans",
    "equal",
    "evaluate",
    "fetch",
    "insert_once",
    "place",
    "propose",
    "require",
    "require_campaign",
    "stream",
    "where",
    "with_parents",
]

CHUNK = 500
"""Values in one IN (...): old versions of SQLite take at most 999 parameters."""

TABLES = metadata.tables


def fetch(connection: Connection, query: Select[Any]) -> list[Mapping[str, Any]]:
    return [dict(row) for row in connection.execute(query).mappings()]


def stream(connection: Connection, query: Select[Any]) -> Iterator[Mapping[str, Any]]:
    """As `fetch`, a few rows at a time: of a search of weeks all at once would take gigabytes."""
    rows = connection.execute(query, execution_options={"yield_per": CHUNK}).mappings()
    return (dict(row) for row in rows)


def equal(table: Table, wanted: Mapping[str, Any]) -> list[ColumnElement[bool]]:
    return [table.c[column] == value for column, value in wanted.items()]


def where(table: Table, wanted: Mapping[str, Any]) -> Select[Any]:
    return select(table).where(*equal(table, wanted))


def by_age(table: Table) -> Select[Any]:
    return select(table).order_by(table.c.created, table.c.id)


def insert_once(connection: Connection, table: Table, row: Mapping[str, Any]) -> bool:
    """Whether the row was new. Never fails on its key, even when two processes insert it at once."""
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    statement = dialect.insert(table).on_conflict_do_nothing().execution_options(preserve_rowcount=True)
    return connection.execute(statement, dict(row)).rowcount == 1


def campaign_names(connection: Connection) -> list[str]:
    return list(connection.execute(select(TABLES["campaigns"].c.name)).scalars())


def campaign_query() -> Select[Any]:
    campaigns, tasks, targets = TABLES["campaigns"], TABLES["tasks"], TABLES["targets"]
    return (
        select(campaigns, tasks.c.body.label("task_body"), targets.c.body.label("target_body"))
        .join(tasks, tasks.c.id == campaigns.c.task)
        .join(targets, targets.c.id == campaigns.c.target)
    )


def campaign(connection: Connection, name: str) -> CampaignRow:
    rows = fetch(connection, campaign_query().where(TABLES["campaigns"].c.name == name))
    if not rows:
        raise _names.no_campaign(name, campaign_names(connection))
    row = rows[0]
    return _records.campaign_from_row(row, row["task_body"], row["target_body"])


def require_campaign(connection: Connection, name: str) -> str | None:
    """The stored owner of its lock: a campaign's whole row holds megabytes. Raises NotFoundError."""
    campaigns = TABLES["campaigns"]
    found = connection.execute(select(campaigns.c.lock_owner).where(campaigns.c.name == name)).first()
    if found is None:
        raise _names.no_campaign(name, campaign_names(connection))
    owner: str | None = found.lock_owner
    return owner


def require(connection: Connection, table: str, keys: Iterable[str], what: str) -> None:
    column = TABLES[table].c.id
    for key in keys:
        if connection.execute(select(column).where(column == key)).first() is None:
            raise StoreError(_rules.not_stored(what, key))


def propose(
    connection: Connection,
    campaign: str,
    ticket: int | None,
    candidate: Candidate,
    emitter: str,
    target_cell: Cell | None,
) -> None:
    if ticket is None:
        raise StoreError(_rules.no_ticket(candidate))
    known = connection.execute(
        select(TABLES["candidates"].c.id).where(TABLES["candidates"].c.id == candidate.id)
    ).first()
    if known is None:
        require(connection, "candidates", candidate.parents, "parent")
        new = insert_once(connection, TABLES["candidates"], _records.candidate_to_row(candidate))
        if new and candidate.parents:
            connection.execute(insert(TABLES["parent_edges"]), _rules.edge_rows(candidate))
    stored = fetch(connection, where(TABLES["proposals"], {"campaign": campaign, "ticket": ticket}))
    if stored:
        _rules.refuse_other_proposal(stored[0], candidate)
        return
    row = _records.proposal_to_row(campaign, ticket, candidate, emitter, target_cell)
    connection.execute(insert(TABLES["proposals"]), row)


def evaluate(connection: Connection, campaign: str, ticket: int | None, evaluation: Evaluation) -> int:
    require(connection, "candidates", [evaluation.candidate], "candidate")
    require(connection, "tasks", [evaluation.task], "task")
    require(connection, "targets", [evaluation.target], "target")
    row = _records.evaluation_to_row(campaign, ticket, evaluation)
    key = connection.execute(insert(TABLES["evaluations"]), row).inserted_primary_key
    assert key is not None
    return int(key[0])


def place(connection: Connection, campaign: str, ticket: int | None, placement: Placement) -> None:
    table = TABLES["evaluations"]
    query = where(table, _rules.ground_conditions(campaign, placement)).order_by(table.c.id.desc()).limit(1)
    grounds = fetch(connection, query)
    if not grounds:
        raise StoreError(_rules.no_ground(placement))
    row = _records.placement_to_row(campaign, ticket, placement, grounds[0]["id"])
    connection.execute(insert(TABLES["placements"]), row)


def with_parents(connection: Connection, rows: Sequence[Mapping[str, Any]], ids: Select[Any]) -> list[Candidate]:
    edges = TABLES["parent_edges"]
    query = (
        select(edges.c.child, edges.c.parent).where(edges.c.child.in_(ids)).order_by(edges.c.child, edges.c.position)
    )
    parents: dict[str, list[str]] = {}
    for child, parent in connection.execute(query):
        parents.setdefault(child, []).append(parent)
    return [_records.candidate_from_row(row, parents.get(row["id"], [])) for row in rows]


def delete_orphans(connection: Connection) -> None:
    candidates, edges = TABLES["candidates"], TABLES["parent_edges"]
    used: set[str] = set()
    for name in ("proposals", "evaluations", "placements"):
        used.update(connection.execute(select(TABLES[name].c.candidate).distinct()).scalars())
    used |= _call_records.named_candidates(fetch(connection, select(TABLES["tickets"])))
    known = set(connection.execute(select(candidates.c.id)).scalars())
    gone = sorted(_rules.orphans(known, used, [Edge(**row) for row in fetch(connection, select(edges))]))
    for column, table in ((edges.c.child, edges), (candidates.c.id, candidates)):
        for start in range(0, len(gone), CHUNK):
            connection.execute(delete(table).where(column.in_(gone[start : start + CHUNK])))
    for name, key in (("tasks", "task"), ("targets", "target")):
        users = [select(TABLES[source].c[key]) for source in ("campaigns", "evaluations")]
        unused = [TABLES[name].c.id.not_in(query) for query in users]
        connection.execute(delete(TABLES[name]).where(*unused))
