"""Where folders are."""

from __future__ import annotations

from pathlib import Path

import pytest

from evoforge.errors import UsageError
from evoforge.paths import cache_dir, unwritable


@pytest.fixture(autouse=True)
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an account without an entry in the password file meets (a container's)."""

    def nowhere(cls: type[Path]) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", classmethod(nowhere))
    monkeypatch.delenv("EVOFORGE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)


def test_without_a_home_the_cache_is_asked_for() -> None:
    with pytest.raises(UsageError, match="EVOFORGE_CACHE"):
        cache_dir()


def test_what_is_named_needs_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_dir() == Path("/somewhere/evoforge")
    monkeypatch.setenv("EVOFORGE_CACHE", "/elsewhere")
    assert cache_dir() == Path("/elsewhere")


def test_where_no_file_can_be_made_is_said(tmp_path: Path) -> None:
    """Nothing stays behind; permissions would let root write to /proc."""
    assert unwritable(tmp_path / "new" / "er") == "" and not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    assert unwritable(tmp_path / "file" / "below") == f"expected a folder at {tmp_path / 'file'}, found a file"
    assert unwritable(Path("/proc/none")).startswith("cannot write in /proc: ")
