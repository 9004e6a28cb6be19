"""The store: the only SQL. `open_store` gives a `Store` for a URL.

Importing this package imports neither sqlalchemy nor alembic; opening an SQL store imports the
first, creating or upgrading one the second too.
"""

from __future__ import annotations

from evoforge.storage._base import (
    CampaignRow,
    Edge,
    EvaluationRow,
    MetaPromptRow,
    Placement,
    PlacementRow,
    ProposalRow,
    Store,
)
from evoforge.storage._calls import CallRow, TicketRow
from evoforge.storage._names import shown_url
from evoforge.storage._owner import Owner

__all__ = [
    "CallRow",
    "CampaignRow",
    "Edge",
    "EvaluationRow",
    "MetaPromptRow",
    "Owner",
    "Placement",
    "PlacementRow",
    "ProposalRow",
    "Store",
    "TicketRow",
    "check_store",
    "open_store",
    "probe_store",
    "shown_url",
    "upgrade_store",
]


def open_store(url: str, *, create: bool = True, read_only: bool = False) -> Store:
    """Opens ``sqlite:///path/evoforge.db``, ``postgresql://user@host/name`` or ``memory://``.

    A SQLite file and its folders are made where they are missing, unless `create` is False. A file
    that cannot be written is opened for reading; so is any with `read_only`.

    Raises:
        UsageError: not such a URL.
        NotFoundError: nothing is there, and nothing may be created.
        StoreVersionError: the schema is older (run ``evoforge db upgrade``) or newer (upgrade
            evoforge) than this version's.
        StoreError: it cannot be opened, or is something else.
        MissingToolError: the PostgreSQL driver is not installed.
    """
    if url == "memory://":
        from evoforge.storage.memory import MemoryStore

        return MemoryStore()
    from evoforge.storage._open import open_sql

    return open_sql(url, create=create, read_only=read_only)


def probe_store(url: str) -> bool:
    """Whether a store that a campaign could write is there; False: it could be made. Changes nothing.

    Raises:
        UsageError, StoreVersionError, StoreError, MissingToolError: as `open_store`, and where it cannot be written.
    """
    from evoforge.storage._open import probe_sql

    return probe_sql(url)


def upgrade_store(url: str) -> str:
    """Brings a store to this version's schema, in one transaction; returns the revision it has then.

    Raises:
        StoreVersionError: it is newer than this version.
        UsageError, NotFoundError, StoreError, MissingToolError: as `open_store`.
    """
    from evoforge.storage._open import upgrade_sql

    return upgrade_sql(url)


def check_store(url: str) -> list[str]:
    """A sentence per broken invariant of a store; none when it is sound. Raises as `open_store`."""
    with open_store(url, create=False) as store:
        return store.check()
