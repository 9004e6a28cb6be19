"""What all tests share: a cache of their own, and property tests without a clock."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("evoforge", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("evoforge")


_LONG = ("test_cpp.py", "test_worker.py", "test_campaign.py", "test_models.py", "test_library.py", "test_selftest.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take minutes come first: side by side, what begins last is what all others wait for."""
    items.sort(key=lambda item: _LONG.index(item.path.name) if item.path.name in _LONG else len(_LONG))


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Builds, headers and ceilings of the tests never mix with the user's.

    Every worker of pytest-xdist has its own cache, but the ceilings are those of the machine, and
    evoforge's own programs, its header and what torch.compile has compiled are good for all.
    """
    cache, run = tmp_path_factory.mktemp("cache"), tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        for shared in ("ceilings", "headers", "inductor", "native", "probes"):
            (run.parent / shared).mkdir(exist_ok=True)
            (cache / shared).symlink_to(run.parent / shared)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVOFORGE_CACHE", str(cache))
        # Nothing here is about how fast something is, and beside other tests no machine calms down.
        patch.setattr("evoforge.campaign._prepare._CALM_TRIES", 1)
        yield


_ADD = """
import torch


class Model(torch.nn.Module):
    def forward(self, x, y):
        return x + y


def get_inputs():
    return [torch.randn(64, 1024), torch.randn(64, 1024)]


def get_init_inputs():
    return []


def refuse(*_, **__):
    raise RuntimeError("eager alone will do")


torch.compile = refuse
"""
_ADDS = """#include "evoforge.h"

int evo_run(const evo_call* call) {
    const float *x = EVO_IN(float, 0), *y = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1); i += evo::lanes)
        evo::store(out + i, evo::load(x + i, evo::all) + evo::load(y + i, evo::all), evo::all);
    return 0;
}
"""


@dataclass(frozen=True)
class Prepared:
    """A campaign `agent` that was set up and has searched nothing, and kernels for its task."""

    url: str
    task: Path
    right: str = _ADDS
    wrong: str = _ADDS.replace("evo::all) + evo", "evo::all) - evo")

    @classmethod
    def copied(cls, source: Path, folder: Path) -> Prepared:
        (folder / "add.py").write_bytes((source / "add.py").read_bytes())
        stores = (closing(sqlite3.connect(place / "evoforge.db")) for place in (source, folder))
        with next(stores) as whole, next(stores) as copy:
            whole.backup(copy)  # with what is still in its log
        return cls(f"sqlite:///{folder}/evoforge.db", folder / "add.py")

    def variant(self, number: int) -> str:
        """A right kernel whose instructions are its own."""
        return self.right.replace("    return 0", f"    if (call->threads == -{number}) return 2;\n    return 0")


@pytest.fixture(scope="session")
def _prepared_db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`evoforge run --evals 0`, once: the store that tests copy."""
    from evoforge.cli import main

    folder = tmp_path_factory.mktemp("prepared")
    (folder / "add.py").write_text(_ADD)
    store = f"sqlite:///{folder}/evoforge.db"
    assert main(["run", str(folder / "add.py"), "--evals", "0", "--name", "agent", "--store", store, "--json"]) == 0
    return folder


@pytest.fixture
def prepared(tmp_path: Path, _prepared_db: Path) -> Prepared:
    return Prepared.copied(_prepared_db, tmp_path)


@pytest.fixture(scope="module")
def prepared_module(tmp_path_factory: pytest.TempPathFactory, _prepared_db: Path) -> Prepared:
    """One copy for the tests of a module, whose judge then starts once."""
    return Prepared.copied(_prepared_db, tmp_path_factory.mktemp("agent"))
