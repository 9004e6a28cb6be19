"""An empty SQLite store, made once by the migrations and copied for every test."""

import shutil
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
