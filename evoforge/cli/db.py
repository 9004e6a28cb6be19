"""`evoforge db upgrade` and `db check`: the store's schema and its invariants."""

from __future__ import annotations

from evoforge.cli._options import DEFAULT_STORE, Json, StoreUrl

__all__ = ["check", "upgrade"]


def upgrade(store: StoreUrl = DEFAULT_STORE, as_json: Json = False) -> None:
    """Migrate a store to this version's schema."""
    from evoforge.cli._output import emit
    from evoforge.storage import shown_url, upgrade_store

    revision = upgrade_store(store)
    if as_json:
        emit({"store": shown_url(store), "revision": revision})
    else:
        print(f"{shown_url(store)} is at schema revision {revision}")


def check(store: StoreUrl = DEFAULT_STORE, as_json: Json = False) -> int:
    """Verify a store's invariants. Exits 1 if one is broken."""
    from evoforge.cli._output import emit
    from evoforge.storage import check_store, shown_url

    problems = check_store(store)
    if as_json:
        emit({"store": shown_url(store), "problems": problems})
    else:
        for problem in problems:
            print(problem)
        print(f"{shown_url(store)}: {len(problems) or 'no'} problem{'' if len(problems) == 1 else 's'}")
    return 1 if problems else 0
