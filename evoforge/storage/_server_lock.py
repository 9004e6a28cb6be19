"""A lock that a PostgreSQL server drops when the process that took it, or its machine, dies."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from contextlib import suppress

from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

__all__ = ["ServerLock", "is_locked"]


class ServerLock:
    """The lock of one campaign. A session of its own has it, which `connect` opens.

    Raises:
        SQLAlchemyError: the server cannot be reached; so does every method but `release`.
    """

    def __init__(self, connect: Callable[[], Connection], campaign: str) -> None:
        self._connect, self._key = connect, _key(campaign)
        self._session: Connection | None = None
        self._asking = threading.Lock()  # one thread at a time may use a connection

    def take(self) -> bool:
        """Whether it was free."""
        session = self._connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            taken = bool(session.execute(text("SELECT pg_try_advisory_lock(:key)"), {"key": self._key}).scalar())
        except BaseException:
            _end(session)
            raise
        if taken:
            self._session = session
        else:
            _end(session)
        return taken

    def keep(self) -> bool:
        """Whether it is still ours. Where its session has ended, as by a restart of the server, another one takes it
        unless somebody else has."""
        with self._asking:
            if self._session is not None:
                try:
                    self._session.execute(text("SELECT 1"))
                    return True
                except SQLAlchemyError:
                    _end(self._session)
                    self._session = None
            return self.take()

    def release(self) -> None:
        with self._asking:
            if self._session is not None:
                # A server notices late that a session has ended; said so, the lock is free at once.
                with suppress(SQLAlchemyError):
                    self._session.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": self._key})
                _end(self._session)
                self._session = None


def is_locked(connection: Connection, campaign: str) -> bool:
    """Whether any session of the server has the lock of a campaign."""
    # A bigint key stands in pg_locks as two halves.
    found = connection.execute(
        text(
            "SELECT 1 FROM pg_locks JOIN pg_database ON pg_locks.database = pg_database.oid "
            "WHERE datname = current_database() AND locktype = 'advisory' AND granted AND objsubid = 1 "
            "AND (classid::bigint << 32) | objid::bigint = :key"
        ),
        {"key": _key(campaign)},
    )
    return found.first() is not None


def _key(campaign: str) -> int:
    return int.from_bytes(hashlib.sha256(f"evoforge campaign {campaign}".encode()).digest()[:8], "big", signed=True)


def _end(session: Connection) -> None:
    session.invalidate()  # the session, and a lock that it may still hold, must not go back to the pool
    session.close()
