"""The tables, as SQLAlchemy sees them now. How they came to be is in `migrations/`."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

__all__ = ["REVISIONS", "metadata"]

REVISIONS: tuple[str, ...] = ("0001", "0002")
"""Every schema revision, oldest first. Kept here so that opening a store need not import alembic."""

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _campaign() -> Column[str]:
    return Column("campaign", ForeignKey("campaigns.name"), nullable=False)


def _candidate() -> Column[str]:
    return Column("candidate", ForeignKey("candidates.id"), nullable=False)


def _text(name: str, *, optional: bool = False) -> Column[str]:
    return Column(name, Text, nullable=optional)


# Ids are hashes of the content. `body` is JSON.
Table("tasks", metadata, Column("id", String(64), primary_key=True), _text("body"), _text("created"))
Table("targets", metadata, Column("id", String(64), primary_key=True), _text("body"), _text("created"))

Table(
    "campaigns",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(200), nullable=False),
    _text("language"),
    Column("seed", BigInteger, nullable=False),
    Column("task", ForeignKey("tasks.id"), nullable=False),
    Column("target", ForeignKey("targets.id"), nullable=False),
    _text("task_place"),
    _text("ceilings"),
    _text("config"),
    _text("descriptor"),
    _text("reachable"),
    _text("setup"),
    Column("protocol", Integer, nullable=False),
    _text("state"),
    _text("stop_reason", optional=True),
    Column("wall_s", Float, nullable=False),
    _text("lock_owner", optional=True),
    _text("created"),
    _text("updated"),
    UniqueConstraint("name"),
)

Table(
    "candidates",
    metadata,
    Column("id", String(64), primary_key=True),
    _text("language"),
    _text("source"),
    _text("genome", optional=True),
    _text("operator"),
    _text("meta_prompt", optional=True),
    _text("model", optional=True),
    _text("licence"),
    _text("notes"),
    _text("created"),
)

Table(
    "parent_edges",
    metadata,
    Column("child", ForeignKey("candidates.id"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("parent", ForeignKey("candidates.id"), nullable=False),
    Index(None, "parent"),
)

Table(
    "proposals",
    metadata,
    Column("campaign", ForeignKey("campaigns.name"), primary_key=True),
    Column("ticket", Integer, primary_key=True),
    _candidate(),
    _text("operator"),
    _text("parents"),
    _text("emitter"),
    _text("meta_prompt", optional=True),
    _text("model", optional=True),
    _text("target_cell", optional=True),
    _text("created"),
    Index(None, "candidate"),
)

Table(
    "evaluations",
    metadata,
    Column("id", Integer, primary_key=True),
    _campaign(),
    Column("ticket", Integer),
    _candidate(),
    _text("params"),
    Column("params_hash", String(16), nullable=False),
    Column("task", ForeignKey("tasks.id"), nullable=False),
    Column("target", ForeignKey("targets.id"), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("status", String(16), nullable=False),
    Column("protocol", Integer, nullable=False),
    _text("cell", optional=True),
    Column("objective", Float),
    Column("latency_ms", Float),
    _text("body"),
    _text("created"),
    Index(None, "campaign", "kind", "status"),
    Index(None, "campaign", "ticket"),
    Index(None, "candidate", "params_hash"),
    Index(None, "task", "target"),
)

Table(
    "placements",
    metadata,
    Column("id", Integer, primary_key=True),
    _campaign(),
    Column("ticket", Integer),
    Column("action", String(16), nullable=False),
    _text("cell"),
    _candidate(),
    _text("params"),
    Column("objective", Float, nullable=False),
    Column("lower", Float, nullable=False),
    _text("reason"),
    Column("evaluation", ForeignKey("evaluations.id"), nullable=False),
    _text("created"),
    Index(None, "campaign"),
    Index(None, "candidate"),
    Index(None, "evaluation"),
)

Table(
    "meta_prompts",
    metadata,
    Column("id", Integer, primary_key=True),
    _campaign(),
    Column("name", String(200), nullable=False),
    Column("version", Integer, nullable=False),
    _text("body"),
    _text("created"),
    UniqueConstraint("campaign", "name", "version"),
)

Table(
    "llm_calls",
    metadata,
    Column("id", Integer, primary_key=True),
    _campaign(),
    Column("ticket", Integer),
    _text("meta_prompt", optional=True),
    _text("purpose"),
    _text("model"),
    Column("prompt_hash", String(64), nullable=False),
    _text("system"),
    _text("user"),
    _text("reply"),
    Column("outcome", String(16), nullable=False),
    _text("reason"),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("completion_tokens", BigInteger, nullable=False),
    Column("usd", Float, nullable=False),
    Column("latency_s", Float, nullable=False),
    Column("retries", Integer, nullable=False),
    Column("unsure_usd", Float, nullable=False),
    Column("unsure_tokens", BigInteger, nullable=False),
    _text("created"),
    Index(None, "campaign"),
    Index(None, "prompt_hash"),
)

# What somebody outside was asked. The one column that changes is `state`: bookkeeping.
Table(
    "tickets",
    metadata,
    Column("campaign", ForeignKey("campaigns.name"), primary_key=True),
    Column("ticket", Integer, primary_key=True),
    _text("emitter"),
    _text("operator"),
    _text("parents"),
    _text("meta_prompt", optional=True),
    _text("target_cell", optional=True),
    _text("exemplars"),
    _text("prompt"),
    _text("expires"),
    Column("state", String(16), nullable=False),
    _text("created"),
)
