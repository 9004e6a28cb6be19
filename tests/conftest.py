"""What all tests share: a cache of their own, and property tests without a clock."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("evoforge", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("evoforge")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Builds, headers and ceilings of the tests never mix with the user's.

    Every worker of pytest-xdist has its own cache, but the ceilings are those of the machine.
    """
    cache, run = tmp_path_factory.mktemp("cache"), tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        ceilings = run.parent / "ceilings"
        ceilings.mkdir(exist_ok=True)
        (cache / "ceilings").symlink_to(ceilings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVOFORGE_CACHE", str(cache))
        yield
