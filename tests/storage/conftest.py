"""An empty SQLite store, made once by the migrations and copied for every test; an empty PostgreSQL database."""

import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from evoforge.storage import Store, open_store


@pytest.fixture(scope="session")
def _empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("empty") / "evoforge.db"
    open_store(f"sqlite:///{path}").close()
    return path


@pytest.fixture
def store_path(tmp_path: Path, _empty_store: Path) -> Path:
    return Path(shutil.copy(_empty_store, tmp_path / "evoforge.db"))


@pytest.fixture
def sqlite_store(store_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{store_path}", create=False) as store:
        yield store


def on_server(statement: str) -> None:
    """Runs a statement on the server that EVOFORGE_TEST_POSTGRES names, beside the stores of tests."""
    import sqlalchemy

    url = sqlalchemy.make_url(os.environ["EVOFORGE_TEST_POSTGRES"]).set(drivername="postgresql+psycopg")
    admin = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.exec_driver_sql(statement)
    admin.dispose()


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """A database of its own; the user of EVOFORGE_TEST_POSTGRES must be allowed to create databases."""
    if "EVOFORGE_TEST_POSTGRES" not in os.environ:
        pytest.skip("EVOFORGE_TEST_POSTGRES holds no server's URL")
    import sqlalchemy

    name = f"evoforge_{uuid.uuid4().hex[:12]}"
    on_server(f"CREATE DATABASE {name}")
    url = sqlalchemy.make_url(os.environ["EVOFORGE_TEST_POSTGRES"]).set(database=name)
    try:
        yield url.render_as_string(hide_password=False)
    finally:
        on_server(f"DROP DATABASE {name} WITH (FORCE)")
