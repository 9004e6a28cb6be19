"""The in-memory store keeps the contract."""

from collections.abc import Iterator

import pytest

from evoforge.storage import Store, open_store
from evoforge.testing.store_suite import StoreSuite, make_campaign


class TestMemoryStore(StoreSuite):
    @pytest.fixture
    def store(self) -> Iterator[Store]:
        with open_store("memory://") as store:
            yield store


def test_two_memory_stores_share_nothing() -> None:
    one, other = open_store("memory://"), open_store("memory://")
    make_campaign(one)
    assert other.campaigns() == []
