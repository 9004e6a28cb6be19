"""SQLAlchemy's exceptions in evoforge's words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from evoforge.errors import StoreError, UsageError

__all__ = ["translated_errors"]

_KNOWN = (
    ("database is locked", "is kept busy by another process; wait for it, or stop it"),
    ("readonly database", "cannot be written; check the permissions of the file and its folder"),
    ("not a database", "is not a SQLite database; give another --store"),
    ("malformed", "is damaged; restore a copy, or look at `evoforge db check`"),
    ("disk is full", "cannot grow: the disk is full; make room and try again"),
    ("connection failed", "cannot be reached; start its server, or give another --store"),
    ("unable to open", "cannot be opened; check the path and its permissions"),
)


@contextmanager
def translated_errors(place: str) -> Iterator[None]:
    """Raises StoreError for whatever SQLAlchemy raises inside; `place` is named in the message.

    A text that no store can hold is a UsageError.
    """
    try:
        yield
    except IntegrityError as error:
        raise StoreError(f"{place} refuses a row that breaks its references or keys: {error.orig}") from error
    except DBAPIError as error:
        text = str(error.orig)
        for part, meaning in _KNOWN:
            if part in text:
                raise StoreError(f"{place} {meaning}") from error
        raise StoreError(f"{place} cannot be read or written: {text.strip()}") from error
    except UnicodeEncodeError as error:  # a word of a command line, or a file's name, in another encoding
        raise UsageError(
            f"expected a name in UTF-8, got {error.object!r}; rename the file, or check the name"
        ) from error
    except SQLAlchemyError as error:
        raise StoreError(f"{place} cannot be used: {error}") from error
