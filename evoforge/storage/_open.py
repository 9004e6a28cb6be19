"""From a store URL to a connected store, with a sentence for everything that can be in the way."""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import QueuePool

from evoforge.errors import MissingToolError, NotFoundError, StoreError, UsageError
from evoforge.paths import unwritable
from evoforge.storage import _schema
from evoforge.storage._errors import translated_errors
from evoforge.storage._migrate import FRESH, migrate, require_current, stored_revision
from evoforge.storage._names import shown_url
from evoforge.storage.sql import SqlStore, is_write, writing

__all__ = ["open_sql", "probe_sql", "upgrade_sql"]

_log = logging.getLogger(__name__)
_QUIET_MS = 3_000
_BUSY_MS = 30_000
_LIVELY = {  # of a server's connections, unless the URL says otherwise
    "keepalives_idle": "60",  # s. A session that holds a lock may be silent for hours: no gateway must take it for dead
    "connect_timeout": "10",  # s
    "tcp_user_timeout": "60000",  # ms. What a network swallows is given up then, where TCP itself waits for an hour
}


@dataclass(frozen=True)
class _Place:
    """A database that is there or can be made. `name` is the URL for messages, without a password."""

    name: str
    engine: Engine
    read_only: bool


def open_sql(url: str, *, create: bool, read_only: bool) -> SqlStore:
    """See `evoforge.storage.open_store`."""
    place = _locate(url, create=create, read_only=read_only)
    try:
        with translated_errors(place.name):
            with place.engine.connect() as connection:
                revision = stored_revision(connection, place.name)
            if revision == FRESH:
                if place.read_only or not create:
                    raise NotFoundError(f"{place.name} holds no evoforge store yet; `evoforge run` makes one")
                revision = _bring_up(place)
            require_current(revision, place.name)
    except BaseException:
        place.engine.dispose()
        raise
    return SqlStore(place.engine, place.name, read_only=place.read_only)


def probe_sql(url: str) -> bool:
    """See `evoforge.storage.probe_store`."""
    try:
        open_sql(url, create=False, read_only=True).close()
    except NotFoundError:
        there = False
    else:
        there = True
    try:
        place = _locate(url, create=False, read_only=False)
    except NotFoundError:
        if problem := unwritable(Path(make_url(url).database or "").parent):
            raise StoreError(f"{problem}; give another --store") from None
        return False
    try:
        if place.read_only:
            raise StoreError(f"{place.name} cannot be written; check the permissions of the file and its folder")
        with translated_errors(place.name):
            _try_writing(place.engine, there)
    finally:
        place.engine.dispose()
    return there


def _try_writing(engine: Engine, there: bool) -> None:
    """Asks for what a campaign needs, and leaves nothing."""
    if there:
        with writing(engine.connect()) as connection:
            connection.execute(text("UPDATE campaigns SET name = name WHERE 1 = 0"))
    elif engine.dialect.name == "postgresql":
        with writing(engine.connect()) as connection:
            connection.execute(text("CREATE TABLE evoforge_probe (n integer)"))
            connection.execute(text("DROP TABLE evoforge_probe"))


def upgrade_sql(url: str) -> str:
    """See `evoforge.storage.upgrade_store`."""
    place = _locate(url, create=False, read_only=False)
    try:
        if place.read_only:
            raise StoreError(f"{place.name} cannot be written; copy it to a folder of yours and upgrade that")
        with translated_errors(place.name):
            return _bring_up(place)
    finally:
        place.engine.dispose()


def _bring_up(place: _Place) -> str:
    """Runs what is missing in one transaction; looks inside it, for another process may be faster."""
    with writing(place.engine.connect()) as connection:
        if connection.dialect.name == "postgresql":  # one at a time, so that no two make the same tables
            connection.execute(text("SELECT pg_advisory_xact_lock(hashtext('evoforge schema'))"))
        found = stored_revision(connection, place.name)
        if found != FRESH and found not in _schema.REVISIONS:
            require_current(found, place.name)  # newer: says so
        if found != _schema.REVISIONS[-1]:
            migrate(connection)
        return stored_revision(connection, place.name)


def _locate(url: str, *, create: bool, read_only: bool) -> _Place:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # the latter for a port that is no number
        raise UsageError(
            f"expected a store like sqlite:///path/evoforge.db or postgresql://user@host/name, got {shown_url(url)!r}"
            + (f"; for a file: sqlite:///{shown_url(url)}" if "://" not in url else "")
        ) from None
    backend = parsed.drivername.partition("+")[0]
    if backend == "sqlite":
        return _locate_file(url, parsed.database, create=create, read_only=read_only)
    if backend == "postgresql":
        return _locate_server(parsed, read_only=read_only)
    raise UsageError(f"expected a store on sqlite or postgresql, got {backend!r} in {shown_url(url)!r}")


# PostgreSQL


def _locate_server(url: URL, *, read_only: bool) -> _Place:
    if url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    try:
        lively = url.update_query_dict({name: value for name, value in _LIVELY.items() if name not in url.query})
        engine = create_engine(lively, pool_pre_ping=True, isolation_level="READ COMMITTED")
    except (ImportError, NoSuchModuleError):
        raise MissingToolError(
            "a PostgreSQL store needs a driver; run in evoforge's folder: pip install -e '.[postgres]'"
        ) from None
    return _Place(shown_url(url.render_as_string(hide_password=False)), engine, read_only)


# SQLite


def _locate_file(name: str, database: str | None, *, create: bool, read_only: bool) -> _Place:
    if not database or ":memory:" in database or database.startswith("file:"):
        raise UsageError(f"expected a file, sqlite:///path/evoforge.db, got {name}; memory:// keeps nothing on disk")
    path = Path(database)
    # Reading must not leave a file behind, nor a folder.
    if not path.exists():
        if read_only or not create:
            raise NotFoundError(f"there is no store at {path.absolute()}; `evoforge run` makes one, or check --store")
        _make_folder(path.parent)
    elif not path.is_file():
        found = "a folder" if path.is_dir() else "something else"
        raise StoreError(f"expected a file at {path.absolute()}, found {found}; give another --store")
    usable = path if path.exists() else path.parent
    writable = os.access(path.parent, os.W_OK) and os.access(usable, os.W_OK)
    if not writable and not path.exists():
        raise StoreError(f"cannot write in {path.parent.absolute()}: the folder is read-only; give another --store")
    return _Place(name, _file_engine(name, path, read_only or not writable), read_only or not writable)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"cannot make the store's folder {folder.absolute()}: {error.strerror}; give another --store"
        ) from error


def _file_engine(name: str, path: Path, read_only: bool) -> Engine:
    # The absolute path: a coordinator may change its working directory.
    engine = create_engine("sqlite://", creator=_opener(path.absolute(), read_only), poolclass=QueuePool)

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # pysqlite's own BEGIN comes late and takes the write lock later still, when it can fail.
        if not is_write(connection):
            connection.exec_driver_sql("BEGIN")
        elif refusal := _refusal(connection):
            if "locked" in refusal:
                _log.warning("%s is kept busy by another process; waiting for it, up to %g s", name, _BUSY_MS / 1000)
            connection.exec_driver_sql("BEGIN IMMEDIATE")  # once more, through SQLAlchemy, which tells what is wrong

    return engine


def _refusal(connection: Connection) -> str:
    """Why a write could not begin before somebody might wonder what is going on; empty where it has begun."""
    raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    raw.execute(f"PRAGMA busy_timeout={_QUIET_MS}")
    try:
        raw.execute("BEGIN IMMEDIATE")
    except sqlite3.Error as error:
        return str(error)
    finally:
        raw.execute(f"PRAGMA busy_timeout={_BUSY_MS}")
    return ""


def _opener(path: Path, read_only: bool) -> Callable[[], sqlite3.Connection]:
    def open_() -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(os.fsencode(path))}?{_mode(path, read_only)}",
            uri=True,
            isolation_level=None,
            check_same_thread=False,  # the pool hands a connection to one thread at a time
            timeout=_BUSY_MS / 1000,
        )
        try:
            _prepare(connection, read_only)
        except BaseException:
            connection.close()
            raise
        return connection

    return open_


def _mode(path: Path, read_only: bool) -> str:
    if not read_only:
        return "mode=rwc"
    log = path.with_name(path.name + "-wal")
    lonely = not os.access(path.parent, os.W_OK) and not (log.exists() and log.stat().st_size)
    # Without a log and without a folder to make one in, nobody can be writing: read the file as it is.
    return "mode=ro&immutable=1" if lonely else "mode=ro"


def _prepare(connection: sqlite3.Connection, read_only: bool) -> None:
    connection.execute("PRAGMA foreign_keys=ON")
    if read_only:
        return
    # Changing to WAL needs the file alone and does not wait for it, so creators can collide here.
    deadline = time.monotonic() + _BUSY_MS / 1000
    while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            break  # a file system without shared memory keeps its mode; that works too, only slower
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    connection.execute("PRAGMA synchronous=FULL")  # a commit survives a power cut too, for one fsync
