from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from evoforge.core import Target
from evoforge.errors import UsageError
from evoforge.evaluation import sandbox
from evoforge.evaluation.build import Builder

needs_all = pytest.mark.skipif(sandbox.reached_layers() != set(sandbox.LAYERS), reason="needs every layer")


@needs_all
def test_a_confined_program_writes_where_it_may_and_reads_nothing_else(tmp_path: Path) -> None:
    mine, secret = tmp_path / "mine", tmp_path / "secret"
    mine.mkdir()
    secret.write_text("secret")
    command = sandbox.confined(["/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache"], [mine])
    text = f"echo kept > {mine}/file; cat {secret}; echo lost > {secret}"
    done = subprocess.run([*command, "/bin/sh", "-c", text], capture_output=True, text=True, check=False)
    assert (mine / "file").read_text() == "kept\n"
    assert secret.read_text() == "secret"
    assert "secret\n" not in done.stdout


@needs_all
def test_what_a_confined_program_starts_ends_with_it(tmp_path: Path) -> None:
    script = "import subprocess, sys; subprocess.Popen(['/bin/sleep', '77'], start_new_session=True); sys.exit(5)"
    done = subprocess.run([*sandbox.confined(["/"], []), sys.executable, "-c", script], check=False)
    assert done.returncode == 5
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert b"/bin/sleep\x0077\x00" not in commands


def test_strict_is_refused_where_it_is_out_of_reach(one_thread: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "reached_layers", lambda: frozenset({"seccomp"}))
    with pytest.raises(UsageError, match=r"no namespaces and no landlock .*doctor"):
        Builder(one_thread, sandbox="strict")
    Builder(one_thread, sandbox="basic")


@pytest.mark.parametrize(
    ("reached", "stored"),
    [
        (sandbox.LAYERS, ["strict", "basic", "none"]),
        (("namespaces", "seccomp"), ["basic", "basic", "none"]),
        (("landlock",), ["none", "none", "none"]),
    ],
)
def test_the_level_that_counts_is_the_weakest(
    monkeypatch: pytest.MonkeyPatch, reached: tuple[str, ...], stored: list[str]
) -> None:
    monkeypatch.setattr(sandbox, "reached_layers", lambda: frozenset(reached))
    assert [sandbox.weakest(level) for level in ("strict", "basic", "none")] == stored
