"""Calls of models, and tickets for who answers from outside."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0002"
down_revision = "0001"


def _text(*names: str, optional: bool = False) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text, nullable=optional) for name in names]


def _count(*names: str) -> list[sa.Column[int]]:
    return [sa.Column(name, sa.BigInteger, nullable=False) for name in names]


def upgrade() -> None:
    op.create_table(
        "llm_calls",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("campaign", sa.String(200), sa.ForeignKey("campaigns.name"), nullable=False),
        sa.Column("ticket", sa.Integer),
        *_text("meta_prompt", optional=True),
        *_text("purpose", "model"),
        sa.Column("prompt_hash", sa.String(64), nullable=False),
        *_text("system", "user", "reply"),
        sa.Column("outcome", sa.String(16), nullable=False),
        *_text("reason"),
        *_count("prompt_tokens", "cached_tokens", "completion_tokens"),
        sa.Column("usd", sa.Float, nullable=False),
        sa.Column("latency_s", sa.Float, nullable=False),
        sa.Column("retries", sa.Integer, nullable=False),
        sa.Column("unsure_usd", sa.Float, nullable=False),
        *_count("unsure_tokens"),
        *_text("created"),
    )
    for column in ("campaign", "prompt_hash"):
        op.create_index(f"ix_llm_calls_{column}", "llm_calls", [column])
    op.create_table(
        "tickets",
        sa.Column("campaign", sa.String(200), sa.ForeignKey("campaigns.name"), nullable=False, primary_key=True),
        sa.Column("ticket", sa.Integer, primary_key=True),
        *_text("emitter", "operator", "parents"),
        *_text("meta_prompt", "target_cell", optional=True),
        *_text("exemplars", "prompt", "expires"),
        sa.Column("state", sa.String(16), nullable=False),
        *_text("created"),
    )
