"""Alembic's entry: runs revisions on the connection that `evoforge.storage._migrate` hands over.

For developers: after a change of `_schema.py`, write the next revision by hand in `versions/`
(``r0002_….py``), and append its id to `_schema.REVISIONS`; a test compares the two.
"""

from __future__ import annotations

from alembic import context

from evoforge.storage._schema import metadata

__all__: list[str] = []

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite alters a table by copying it
    transactional_ddl=True,  # a store is never left between two revisions
)
with context.begin_transaction():
    context.run_migrations()
