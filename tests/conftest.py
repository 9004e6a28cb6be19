"""What all tests share: a cache of their own, and property tests without a clock."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("evoforge", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("evoforge")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Builds, headers and ceilings of the tests never mix with the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVOFORGE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
