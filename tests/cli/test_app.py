"""Help, errors and exit statuses: what every command has in common."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import evoforge
from evoforge.errors import EvoforgeError

Cli = Callable[..., Any]

COMMANDS = (
    "run", "resume", "campaigns", "status", "elites", "show", "lineage", "evaluate", "bench", "heatmap", "export",
    "ask", "tell", "mcp", "doctor", "targets", "selftest", "tasks check", "db upgrade", "db check",
)  # fmt: skip


def test_help_lists_every_command_and_nothing_else(cli: Cli) -> None:
    done = cli("--help")
    assert done.status == 0
    listed = [line.split()[0] for line in done.out.partition("Commands:")[2].splitlines() if line.strip()]
    assert listed == list(dict.fromkeys(name.split()[0] for name in COMMANDS))
    assert cli().out == done.out


def test_a_narrow_terminal_cuts_no_explanation(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    for family in ([], ["tasks"], ["db"]):
        text = cli(*family, "--help").out.partition("Options:")[2]
        assert "..." not in text and max(map(len, text.splitlines())) <= 60


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(cli: Cli, command: str) -> None:
    done = cli(*command.split(), "--help")
    assert done.status == 0
    assert "--json" in done.out or command == "mcp"  # whose stdout is the protocol
    assert max(map(len, done.out.splitlines())) <= 100


def test_version(cli: Cli) -> None:
    assert cli("--version").out == f"evoforge {evoforge.__version__}\n"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["rnu", "x.py"], "Did you mean 'run'"),
        (["report", "c"], "No such command 'report'. Did you mean 'heatmap'?"),
        (["plot", "heatmap", "c"], "No such command 'plot'. Did you mean 'heatmap'?"),
        (["run"], "Missing argument"),
        (["run", "x.py", "--evlas", "3"], "--evals"),
        (["run", "x.py", "--evals", "many"], "valid integer"),
        (["status", "--stoer", "x"], "--store"),
    ],
)
def test_misuse_is_one_sentence_and_status_2(cli: Cli, argv: list[str], said: str) -> None:
    done = cli(*argv)
    assert (done.status, done.out) == (2, "")
    assert said in done.err and len(done.err.splitlines()) == 1 and done.err.startswith("evoforge: ")
    as_json = cli(*argv, "--json")
    assert as_json.status == 2
    assert as_json.json["error"]["type"] == "UsageError"
    assert said in as_json.json["error"]["message"]


def test_a_bug_shows_its_traceback_and_asks_to_be_reported(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: str) -> None:
        raise ZeroDivisionError("seven by nothing")

    monkeypatch.setattr("evoforge.campaign.campaigns", broken)
    done = cli("campaigns")
    assert done.status == 2
    assert "Traceback" in done.err and "report it" in done.err
    assert cli("campaigns", "--json").json["error"]["type"] == "ZeroDivisionError"


def test_an_expected_error_has_no_traceback(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: str) -> None:
        raise EvoforgeError("this is known; do that")

    monkeypatch.setattr("evoforge.campaign.campaigns", refused)
    done = cli("campaigns")
    assert (done.status, done.err) == (2, "evoforge: this is known; do that\n")


def test_ctrl_c_is_130(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(_: str) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("evoforge.campaign.campaigns", stopped)
    assert cli("campaigns").status == 130
    done = cli("campaigns", "--json")
    assert (done.status, done.json["error"]["type"]) == (130, "Interrupted")


def test_a_reader_that_leaves_early_is_no_error(store_url: str) -> None:
    program = "import sys; from evoforge.cli import main; sys.exit(main(sys.argv[1:]))"
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-c", program, "status", "first-1", "--store", store_url],
        stdout=write, stderr=subprocess.PIPE, timeout=60, text=True,
    )  # fmt: skip
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "argv", [["status", "first-1"], ["elites", "first-1"], ["elites", "first-1", "--json"], ["--help"], ["--version"]]
)
def test_output_that_leads_nowhere(store_url: str, argv: list[str]) -> None:
    """A full disk is one sentence and no traceback when Python ends; a reader that has gone is none."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-m", "evoforge", *argv, *(["--store", store_url] if argv[1:] else [])]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, env=environment, stdout=full, stderr=subprocess.PIPE, timeout=60, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("evoforge: ") and len(done.stderr.splitlines()) == 1
    assert "No space left on device; make room" in done.stderr
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, env=environment, stdout=write, stderr=subprocess.PIPE, timeout=60, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")
    closed = [sys.executable, "-c", "import os, sys; os.close(1); os.execv(sys.argv[1], sys.argv[1:])", *command]
    done = subprocess.run(closed, env=environment, stderr=subprocess.PIPE, timeout=60, text=True)
    assert done.returncode == 2
    lost = "what was to be printed is lost: Bad file descriptor; let stdout lead to some place"
    assert done.stderr == f"evoforge: {lost}\n"


def test_a_terminal_without_unicode_is_no_error(store_url: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-m", "evoforge", "elites", "first-1", "--store", store_url],
        env=environment, capture_output=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert b"2.00x" in done.stdout and b"?" not in done.stdout


def test_doctor_names_what_is_missing_and_the_mend(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/deep/store.db"
    good = cli("doctor", "--store", store, "--json")
    assert good.status == 0
    assert {row["name"] for row in good.json["checks"]} >= {"compiler", "torch", "cpu", "memory", "seccomp", "store"}
    assert not (tmp_path / "deep").exists(), "looking changes nothing"
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    (tmp_path / "plain").write_text("")
    bad = cli("doctor", "--store", f"sqlite:///{tmp_path}/plain/store.db")
    assert bad.status == 1
    assert "no compiler to ask" in bad.out
    assert "FAIL  compiler" in bad.out and "apt-get install g++" in bad.out
    assert "FAIL  store" in bad.out
    (tmp_path / "other").write_text("#!/bin/sh\necho 'clang version 18.1.3'\n")
    (tmp_path / "other").chmod(0o755)
    monkeypatch.setenv("CXX", str(tmp_path / "other"))
    (compiler,) = (row for row in cli("doctor", "--json").json["checks"] if row["name"] == "compiler")
    assert compiler["level"] == "fail" and "clang" in compiler["found"] and "unset CXX" in compiler["mend"]
    monkeypatch.setenv("EVOFORGE_DATA", str(tmp_path / "nowhere"))
    (data,) = (row for row in cli("doctor", "--json").json["checks"] if row["name"] == "data")
    assert data["level"] == "fail" and "nowhere" in data["found"] and "EVOFORGE_DATA" in data["mend"]
    assert json.loads(cli("doctor", "--json").out)["ok"] is False


def test_doctor_opens_the_store_and_tells_no_password(cli: Cli, store_url: str, tmp_path: Path) -> None:
    def said(url: str) -> tuple[str, str]:
        (row,) = (row for row in cli("doctor", "--store", url, "--json").json["checks"] if row["name"] == "store")
        assert row["level"] == "ok" or row["mend"]
        return row["level"], f"{row['found']} → {row['mend']}"

    assert said(store_url) == ("ok", f"{store_url} (exists) → ")
    with closing(sqlite3.connect(store_url.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '0001'")
    level, text = said(store_url)
    assert level == "fail" and "evoforge db upgrade" in text
    assert said(f"sqlite:///{tmp_path}")[0] == "fail"
    for url in ("postgresql://me:secret@127.0.0.1:1/db", "mysql://me:secret@127.0.0.1/db"):
        level, text = said(url)
        assert level == "fail" and "secret" not in text


def test_no_command_prints_the_password_of_a_store(cli: Cli, task_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = "postgresql://me:secret@host/db"
    monkeypatch.setattr("evoforge.campaign.campaigns", lambda _: [])
    monkeypatch.setattr("evoforge.storage.check_store", lambda _: [])
    monkeypatch.setattr("evoforge.storage.upgrade_store", lambda _: "0002")
    for command in (["campaigns"], ["status"], ["db", "check"], ["db", "upgrade"], ["run", task_file, "--dry-run"]):
        for more in ([], ["--json"]):
            done = cli(*command, "--store", url, *more)
            assert "secret" not in done.out + done.err and done.out + done.err
