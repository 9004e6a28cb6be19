"""From a store URL to a connected store, with a sentence for everything that can be in the way."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from evoforge.errors import MissingToolError, NotFoundError, StoreError, UsageError
from evoforge.storage._migrate import FRESH, migrate, require_current, stored_revision
from evoforge.storage.sql import WRITE, SqlStore, translated_errors, writing

__all__ = ["open_sql", "upgrade_sql"]

_BUSY_MS = 30_000


def open_sql(url: str, *, create: bool, read_only: bool) -> SqlStore:
    """See `evoforge.storage.open_store`."""
    engine, place, read_only = _connect(url, create=create, read_only=read_only)
    try:
        with translated_errors(place):
            with engine.connect() as connection:
                revision = stored_revision(connection, place)
            if revision == FRESH:
                if read_only or not create:
                    raise NotFoundError(f"{place} holds no evoforge store yet; `evoforge run` creates it")
                _bring_up(engine, place, only_fresh=True)
            else:
                require_current(revision, place)
    except BaseException:
        engine.dispose()
        raise
    return SqlStore(engine, place, read_only=read_only)


def upgrade_sql(url: str) -> tuple[str, str]:
    """See `evoforge.storage.upgrade`."""
    engine, place, read_only = _connect(url, create=True, read_only=False)
    if read_only:
        engine.dispose()
        raise StoreError(f"{place} cannot be written, so it cannot be upgraded; copy it to a writable folder first")
    with closing_engine(engine), translated_errors(place):
        return _bring_up(engine, place, only_fresh=False)


def closing_engine(engine: Engine) -> closing[Any]:
    class _Disposes:
        def close(self) -> None:
            engine.dispose()

    return closing(_Disposes())


def _bring_up(engine: Engine, place: str, *, only_fresh: bool) -> tuple[str, str]:
    """Migrates in one transaction; looks again inside it, for another process may have been first."""
    with writing(engine) as connection:
        before = stored_revision(connection, place)
        from evoforge.storage._schema import REVISIONS

        if before != FRESH and (only_fresh or before not in REVISIONS):
            require_current(before, place)
        if before != REVISIONS[-1]:
            migrate(connection)
        return before, stored_revision(connection, place)
