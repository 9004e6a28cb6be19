"""Which schema a database has, and bringing it to this version's with alembic."""

from __future__ import annotations

import shlex
import threading
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from evoforge.errors import StoreError, StoreVersionError
from evoforge.storage import _schema

__all__ = ["FRESH", "migrate", "require_current", "stored_revision"]

FRESH = ""
"""The revision of a database without any table."""

_SCRIPTS = Path(__file__).with_name("migrations")
_ALEMBIC = threading.Lock()  # alembic's context is one global


def stored_revision(connection: Connection, place: str) -> str:
    """The schema revision, or FRESH.

    Raises:
        StoreError: tables are there, but not evoforge's.
    """
    tables = inspect(connection).get_table_names()
    if "alembic_version" in tables and ("campaigns" in tables or tables == ["alembic_version"]):
        found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
        if found or (found is None and "campaigns" not in tables):
            return str(found or FRESH)
        raise StoreError(f"{place} is damaged: it does not say which schema it has; restore a copy")
    if tables:
        raise StoreError(f"{place} is a database of something else (table {tables[0]!r}); give another --store")
    return FRESH


def require_current(revision: str, place: str) -> None:
    """Raises StoreVersionError, with the way on, unless `revision` is the one this version writes."""
    if revision == _schema.REVISIONS[-1]:
        return
    if revision in _schema.REVISIONS:
        raise StoreVersionError(
            f"{place} has schema {revision}, this evoforge writes {_schema.REVISIONS[-1]}; "
            f"run `evoforge db upgrade --store {shlex.quote(place)}`"
        )
    raise StoreVersionError(
        f"{place} has schema {revision}, newer than the {_schema.REVISIONS[-1]} that this evoforge knows; "
        "upgrade evoforge to the version that wrote it, or give another --store"
    )


def migrate(connection: Connection) -> None:
    """Runs all missing revisions inside the transaction that `connection` is in."""
    from alembic import command  # 0.35 s to import, and a store is created once
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    with _ALEMBIC:
        command.upgrade(config, "head")
