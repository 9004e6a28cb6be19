from __future__ import annotations

import os
from pathlib import Path

from evoforge.core import Status
from evoforge.evaluation.built import Built, find, keep, prune


def _made(folder: Path, text: str) -> Path:
    folder.mkdir()
    for name in ("kernel.o", "kernel.so", "kernel.cpp"):
        (folder / name).write_text(text)
    return folder


def test_a_build_is_found_as_it_was_kept(tmp_path: Path) -> None:
    built = Built(Status.CORRECT, log="a warning", text_hash="12", stateful="a static")
    kept = keep(built, _made(tmp_path / "work", "first"), tmp_path / "home")
    assert kept == find(tmp_path / "home")
    assert (kept.log, kept.text_hash, kept.stateful) == ("a warning", "12", "a static")
    assert kept.library_path is not None and kept.library_path.read_text() == "first"
    assert not (tmp_path / "home" / "kernel.cpp").exists()


def test_of_a_failed_build_only_the_verdict_stays(tmp_path: Path) -> None:
    kept = keep(Built(Status.BUILD_ERROR, "no such name"), _made(tmp_path / "work", ""), tmp_path / "home")
    assert (kept.status, kept.reason, kept.library_path) == (Status.BUILD_ERROR, "no such name", None)
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["built.json"]


def test_who_comes_second_takes_what_is_there(tmp_path: Path) -> None:
    keep(Built(Status.CORRECT, text_hash="first"), _made(tmp_path / "one", "first"), tmp_path / "home")
    second = keep(Built(Status.CORRECT, text_hash="second"), _made(tmp_path / "two", "second"), tmp_path / "home")
    assert second.text_hash == "first"
    assert second.library_path is not None and second.library_path.read_text() == "first"


def test_the_newest_builds_are_kept(tmp_path: Path) -> None:
    homes = [tmp_path / "ab" / f"{number:064x}" for number in range(5)]
    for age, home in enumerate(homes):
        home.mkdir(parents=True)
        os.utime(home, (1000 - age, 1000 - age))
    (tmp_path / "tmp-1").mkdir()
    prune(tmp_path, kept=2)
    assert [home.exists() for home in homes] == [True, True, False, False, False]
    assert (tmp_path / "tmp-1").exists()
