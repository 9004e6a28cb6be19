"""The first schema: campaigns, tasks, targets, candidates, lineages, outcomes, meta-prompts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0001"
down_revision = None


def _text(*names: str, optional: bool = False) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text, nullable=optional) for name in names]


def _refer(name: str, to: str, *, key: bool = False) -> sa.Column[str]:
    length = 200 if to == "campaigns.name" else 64
    return sa.Column(name, sa.String(length), sa.ForeignKey(to), nullable=False, primary_key=key)


def upgrade() -> None:
    for table in ("tasks", "targets"):
        op.create_table(table, sa.Column("id", sa.String(64), primary_key=True), *_text("body", "created"))
    op.create_table(
        "campaigns",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(200), nullable=False, unique=True),
        *_text("language"),
        sa.Column("seed", sa.BigInteger, nullable=False),
        _refer("task", "tasks.id"),
        _refer("target", "targets.id"),
        *_text("task_place", "ceilings", "config", "descriptor", "reachable", "setup"),
        sa.Column("protocol", sa.Integer, nullable=False),
        *_text("state"),
        *_text("stop_reason", optional=True),
        sa.Column("wall_s", sa.Float, nullable=False),
        *_text("lock_owner", optional=True),
        *_text("created", "updated"),
    )
    _create_candidates()
    _create_outcomes()
    op.create_table(
        "meta_prompts",
        sa.Column("id", sa.Integer, primary_key=True),
        _refer("campaign", "campaigns.name"),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        *_text("body", "created"),
        sa.UniqueConstraint("campaign", "name", "version"),
    )


def _create_candidates() -> None:
    op.create_table(
        "candidates",
        sa.Column("id", sa.String(64), primary_key=True),
        *_text("language", "source"),
        *_text("genome", optional=True),
        *_text("operator"),
        *_text("meta_prompt", "model", optional=True),
        *_text("licence", "notes", "created"),
    )
    op.create_table(
        "parent_edges",
        _refer("child", "candidates.id", key=True),
        sa.Column("position", sa.Integer, primary_key=True),
        _refer("parent", "candidates.id"),
    )
    op.create_index("ix_parent_edges_parent", "parent_edges", ["parent"])
    op.create_table(
        "proposals",
        _refer("campaign", "campaigns.name", key=True),
        sa.Column("ticket", sa.Integer, primary_key=True),
        _refer("candidate", "candidates.id"),
        *_text("operator", "parents", "emitter"),
        *_text("meta_prompt", "model", "target_cell", optional=True),
        *_text("created"),
    )
    op.create_index("ix_proposals_candidate", "proposals", ["candidate"])


def _create_outcomes() -> None:
    op.create_table(
        "evaluations",
        sa.Column("id", sa.Integer, primary_key=True),
        _refer("campaign", "campaigns.name"),
        sa.Column("ticket", sa.Integer),
        _refer("candidate", "candidates.id"),
        *_text("params"),
        sa.Column("params_hash", sa.String(16), nullable=False),
        _refer("task", "tasks.id"),
        _refer("target", "targets.id"),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("protocol", sa.Integer, nullable=False),
        *_text("cell", optional=True),
        sa.Column("objective", sa.Float),
        sa.Column("latency_ms", sa.Float),
        *_text("body", "created"),
    )
    op.create_index("ix_evaluations_campaign_kind_status", "evaluations", ["campaign", "kind", "status"])
    op.create_index("ix_evaluations_campaign_ticket", "evaluations", ["campaign", "ticket"])
    op.create_index("ix_evaluations_candidate_params_hash", "evaluations", ["candidate", "params_hash"])
    op.create_index("ix_evaluations_task_target", "evaluations", ["task", "target"])
    op.create_table(
        "placements",
        sa.Column("id", sa.Integer, primary_key=True),
        _refer("campaign", "campaigns.name"),
        sa.Column("ticket", sa.Integer),
        sa.Column("action", sa.String(16), nullable=False),
        *_text("cell"),
        _refer("candidate", "candidates.id"),
        *_text("params"),
        sa.Column("objective", sa.Float, nullable=False),
        sa.Column("lower", sa.Float, nullable=False),
        *_text("reason"),
        sa.Column("evaluation", sa.Integer, sa.ForeignKey("evaluations.id"), nullable=False),
        *_text("created"),
    )
    for column in ("campaign", "candidate", "evaluation"):
        op.create_index(f"ix_placements_{column}", "placements", [column])
