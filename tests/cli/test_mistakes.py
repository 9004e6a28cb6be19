"""What ordinary users get wrong, and what a machine does to them: one clear sentence, nothing lost."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from evoforge.campaign._setup import Setup
from evoforge.cli import _progress, main
from evoforge.evaluation.judge import Judge
from evoforge.prompts.files import SECTIONS
from evoforge.storage import _open, open_store
from evoforge.testing.model_server import ModelServer, slow

Cli = Callable[..., Any]

KERNELS = Path(__file__).parent.parent / "evaluation" / "kernels"

TASK = """
import torch
from torch import nn

M = 64
N = 64


class Model(nn.Module):
    def forward(self, x):
        return {body}


def get_inputs():
    return [torch.randn(M, N)]


def get_init_inputs():
    return []
"""
NO_COMPILE = "import torch._inductor.config\ntorch._inductor.config.cpp.cxx = ('/nowhere/g++',)\n"
EAGER_ALONE = """

def refuse(*_, **__):
    raise RuntimeError("eager alone will do")


torch.compile = refuse
"""
SORTS = """
#include "evoforge.h"
#include <algorithm>

extern "C" int evo_run(const evo_call* call) {
    const float* x = EVO_IN(float, 0);
    float* out = EVO_OUT(float, 0);
    const int64_t count = EVO_SIZE(out0, 0);
    std::copy(x, x + count, out);
    std::sort(out, out + count);
    return 0;
}
"""


def task(folder: Path, body: str, name: str = "task.py") -> Path:
    path = folder / name
    path.write_text(TASK.replace("{body}", body))
    return path


def one_sentence(done: Any) -> str:
    """The message of a command that was misused; stdout holds one JSON object and nothing else."""
    assert done.status == 2
    assert "Traceback" not in done.err
    error = done.json["error"]
    assert set(done.json) == {"error"} and set(error) == {"type", "message"}
    return str(error["message"])


# Without running anything


@pytest.mark.parametrize(
    "argv",
    [
        ["resume", "nope"],
        ["status", "nope"],
        ["elites", "nope"],
        ["show", "abcdef"],
        ["lineage", "abcdef"],
        ["bench", "nope"],
        ["heatmap", "nope", "-o", "map.png"],
        ["export", "nope", "-o", "made"],
    ],
)
def test_what_is_not_there_is_named(cli: Cli, store_url: str, tmp_path: Path, argv: list[str]) -> None:
    assert argv[1] in one_sentence(cli(*argv, "--store", store_url, "--json"))
    nowhere = tmp_path / "none" / "e.db"
    message = one_sentence(cli(*argv, "--store", f"sqlite:///{nowhere}", "--json"))
    assert str(nowhere) in message and "--store" in message
    assert not nowhere.parent.exists()


def test_a_store_that_cannot_be_used_is_named(cli: Cli, store_url: str, task_file: Path) -> None:
    other = task_file.parent / "letter.db"
    other.write_text("Dear reader, this is no database.\n" * 100)
    for command in (["status", "first-1"], ["run", task_file]):
        message = one_sentence(cli(*command, "--store", f"sqlite:///{other}", "--json"))
        assert "letter.db" in message and "not a SQLite database" in message
    assert other.read_text().startswith("Dear reader")
    with contextlib.closing(sqlite3.connect(store_url.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    for command in (["status", "first-1"], ["run", task_file], ["resume", "first-1"]):
        assert "upgrade evoforge" in one_sentence(cli(*command, "--store", store_url, "--json"))
    message = one_sentence(cli("run", task_file, "--store", "sqlite:////proc/nowhere/e.db", "--json"))
    assert "/proc/nowhere" in message and "--store" in message
    message = one_sentence(cli("status", "--store", "sqlite:////dev/null", "--json"))
    assert "found something else; give another --store" in message


def test_names_that_are_not_utf8(cli: Cli, store_url: str, task_file: Path) -> None:
    """What the system hands over of other encodings are surrogates, which no store can hold; folders it can name."""
    odd = task_file.parent / os.fsdecode(b"caf\xe9")
    odd.mkdir()
    store = f"sqlite:///{odd}/e.db"
    (odd / "e.db").write_bytes(Path(store_url.removeprefix("sqlite:///")).read_bytes())
    assert [row["campaign"] for row in cli("campaigns", "--store", store, "--json").json["campaigns"]] == ["first-1"]
    assert "no store at" in one_sentence(cli("campaigns", "--store", f"sqlite:///{odd}/none.db", "--json"))
    for argv in (["status"], ["elites"], ["resume"]):
        assert "in UTF-8" in one_sentence(cli(*argv, os.fsdecode(b"caf\xe9"), "--store", store, "--json"))


def test_a_store_that_would_be_lost_with_the_command_is_refused(cli: Cli, task_file: Path) -> None:
    for command in (["run", task_file, "--evals", "1"], ["campaigns"], ["doctor"]):
        message = one_sentence(cli(*command, "--store", "memory://", "--json"))
        assert "memory://" in message and "--store sqlite:///PATH" in message


def test_a_replay_of_nothing_takes_no_name(cli: Cli, task_file: Path, store_url: str) -> None:
    store = f"sqlite:///{task_file.parent}/mine.db"
    run = ("run", task_file, "--evals", "0", "--name", "mine", "--store", store, "--json")
    message = one_sentence(cli(*run, "--replay", f"sqlite:///{task_file.parent}/none.db"))
    assert "none.db" in message and "--replay" in message
    assert "set-up of task" in one_sentence(cli(*run, "--replay", store_url)), "of another task"
    assert cli("campaigns", "--store", store, "--json").json == {"campaigns": []}


def test_a_dry_run_looks_at_the_store_too(cli: Cli, task_file: Path, store_url: str) -> None:
    dry = ("run", task_file, "--dry-run", "--json")
    assert "sqlite:///e.db" in one_sentence(cli(*dry, "--store", "e.db"))
    assert "first-1" in one_sentence(cli(*dry, "--store", store_url, "--name", "first-1"))
    for place in ("/proc/nowhere/e.db", f"{task_file}/e.db"):
        assert "give another --store" in one_sentence(cli(*dry, "--store", f"sqlite:///{place}"))
    before = sorted(task_file.parent.iterdir())
    assert cli(*dry, "--store", store_url).status == 0
    assert sorted(task_file.parent.iterdir()) == before, "looking leaves nothing behind"
    older = task_file.parent / "older.db"
    older.write_bytes(Path(store_url.removeprefix("sqlite:///")).read_bytes())
    with contextlib.closing(sqlite3.connect(older)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '0001'")
    assert "evoforge db upgrade" in one_sentence(cli(*dry, "--store", f"sqlite:///{older}"))
    assert "--replay" in one_sentence(cli(*dry, "--replay", f"sqlite:///{task_file.parent}/none.db"))
    assert cli(*dry, "--store", f"sqlite:///{task_file.parent}/none.db").status == 0
    assert not (task_file.parent / "none.db").exists()


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--minutes", "inf"], "--minutes"),
        (["--seed", "x"], "--seed"),
        (["--workers", "0"], "--workers"),
        (["--target", "cpu:threads=9999"], "'9999'"),
        (["--target", "cpu:isa=bogus"], "'bogus'"),
        (["--name=-x"], "--name"),
        (["--frob", "1"], "--frob"),
    ],
)
def test_wrong_values_are_named(cli: Cli, task_file: Path, argv: list[str], said: str) -> None:
    store = task_file.parent / "e.db"
    assert said in one_sentence(cli("run", task_file, *argv, "--store", f"sqlite:///{store}", "--json"))
    assert not store.exists()


@pytest.mark.parametrize(
    ("prior", "said"),
    [
        ("strem=stream", "unknown decision 'strem'; did you mean 'stream'?"),
        ("stream=steam", "unknown value 'steam' of stream; did you mean 'stream'?"),
        ("UNROLL=4", ""),
    ],
)
def test_a_decision_that_there_is_not_is_named(
    cli: Cli, task_file: Path, monkeypatch: pytest.MonkeyPatch, prior: str, said: str
) -> None:
    folder = task_file.parent / "meta_prompts"
    folder.mkdir()
    sections = "\n".join(f"## {name}\ntext" for name in SECTIONS)
    head = f"name: mine\nversion: 1\nlanguage: cpp\nstrategy: {{priors: {{{prior}: 2}}}}"
    (folder / "mine.md").write_text(f"---\n{head}\n---\n{sections}\n")
    monkeypatch.setenv("EVOFORGE_DATA", str(task_file.parent))
    done = cli("run", task_file, "--dry-run", "--store", f"sqlite:///{task_file.parent}/e.db", "--json")
    assert (one_sentence(done) if said else "").endswith(said) and done.status == (2 if said else 0)


def test_files_that_are_no_tasks_or_kernels(cli: Cli, task_file: Path) -> None:
    folder = task_file.parent
    text = task_file.read_text()
    (folder / "syntax.py").write_text(text.replace("(nn.Module)", "(nn.Module"))
    (folder / "model.py").write_text(text.replace("class Model", "class Mdel"))
    (folder / "inputs.py").write_text(text.replace("get_inputs", "get_input"))
    (folder / "bad.cpp").write_text("// evoforge: param TILE in banana\n")
    (folder / "params.cpp").write_text(
        "// evoforge: param T = 1 in {1, 2}\n// evoforge: param TILE = 8 in {8, 16}\n// evoforge: require T < 2\n"
    )
    line = text.splitlines().index("class Model(nn.Module):") + 1
    assert f"syntax.py:{line}:" in one_sentence(cli("run", folder / "syntax.py", "--json"))
    assert "did you mean that by 'Mdel'" in one_sentence(cli("run", folder / "model.py", "--json"))
    assert "get_inputs()" in one_sentence(cli("run", folder / "inputs.py", "--json"))
    assert "bad.cpp: line 1:" in one_sentence(cli("run", task_file, "--from", folder / "bad.cpp", "--json"))
    evaluate = ("evaluate", folder / "params.cpp", "--task", task_file, "--json")
    for argv, said in [
        (["--param", "T=2"], "T in [1, 2]"),
        (["--param", "T=2"], "the kernel requires T < 2"),
        (["--param", "U=1"], "(T in [1, 2], TILE in [8, 16]), got U"),
        (["--param", "TIEL=16"], "got TIEL; did you mean TILE?"),
        (["--param", "tile=16"], "got tile; did you mean TILE?"),
        (["--param", "TILE=9"], "got TILE=9"),
        (["--param", "T"], "NAME=INTEGER"),
        (["--seed", "-1"], "--seed"),
    ]:
        assert said in one_sentence(cli(*evaluate, *argv))
    bad = ("evaluate", folder / "bad.cpp", "--task", task_file, "--json")
    assert "bad.cpp: line 1:" in one_sentence(cli(*bad))
    assert "nowhere.cpp" in one_sentence(cli("evaluate", folder / "nowhere.cpp", "--task", task_file, "--json"))


def test_no_compiler(cli: Cli, task_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = f"sqlite:///{task_file.parent}/e.db"
    run = ("run", task_file, "--name", "mine", "--store", store, "--json")
    monkeypatch.setenv("CXX", "/nowhere/g++")
    assert "'/nowhere/g++'" in one_sentence(cli(*run))
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", str(task_file.parent))
    assert "apt-get install g++" in one_sentence(cli(*run))
    assert "apt-get install g++" in one_sentence(cli("evaluate", KERNELS / "add.cpp", "--task", task_file, "--json"))
    assert cli("campaigns", "--store", store, "--json").json == {"campaigns": []}


def test_a_full_disk_under_the_cache_is_no_bug(cli: Cli, task_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/cache/objects")

    monkeypatch.setattr("evoforge.evaluation.ceilings.measure_ceilings", full)
    message = one_sentence(cli("targets", "--json"))
    assert "/cache/objects" in message and message.endswith("make room and try again")


# With a reference process


@pytest.mark.parametrize(
    ("body", "argv", "said"),
    [
        ("x + 1 if x.sum() > 0 else x - 1", [], ("task.py", ":11", "torch.where")),
        ("torch.erfinv(x)", [], ("aten.erfinv", "--from")),
        ("torch.relu(x)", ["--set", "M=10000000000"], ("GiB", "--set")),
        ("torch.relu(x)", ["--set", "M=0"], ("(0, 64)", "--set")),
    ],
)
def test_a_task_that_cannot_be_searched_leaves_its_name_free(
    cli: Cli, tmp_path: Path, body: str, argv: list[str], said: tuple[str, ...]
) -> None:
    store = f"sqlite:///{tmp_path}/e.db"
    path = task(tmp_path, body)
    message = one_sentence(cli("run", path, "--name", "mine", "--evals", 2, "--store", store, "--json", *argv))
    assert all(part in message for part in said), message
    assert cli("campaigns", "--store", store, "--json").json == {"campaigns": []}


def test_sigterm_stops_as_ctrl_c_does(cli: Cli, task_file: Path) -> None:
    store = f"sqlite:///{task_file.parent}/e.db"
    command = [sys.executable, "-m", "evoforge", "run", str(task_file), "--name", "mine", "--store", store]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        said = ""
        while "starting the reference" not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        process.send_signal(signal.SIGTERM)
        said += process.stderr.read()
        assert process.stdout.read() == ""
    assert process.returncode == 143
    assert said.endswith(f"evoforge: interrupted; go on with: evoforge resume mine --store {store}\n")
    assert "Traceback" not in said
    assert cli("status", "mine", "--store", store, "--json").json["state"] == "interrupted"


def test_a_second_signal_leaves_the_call_that_the_first_one_waits_for(cli: Cli, tmp_path: Path) -> None:
    store, path = f"sqlite:///{tmp_path}/e.db", task(tmp_path, "x + 1")
    path.write_text(path.read_text() + EAGER_ALONE)
    with ModelServer([slow()]) as server:
        prices = {"usd_per_mtok_in": 1, "usd_per_mtok_out": 1, "timeout_s": 900}
        fields = {
            "name": "mine", "tasks": [path.name], "emitters": ["invent"], "budget": {"usd": 1},
            "models": [{"model": "openai/slow", "api_base": server.api_base, **prices}],
        }  # fmt: skip
        file = tmp_path / "mine.yaml"
        file.write_text(json.dumps(fields))
        command = [sys.executable, "-m", "evoforge", "run", str(file), "--store", store]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            while not server.books.calls:
                assert process.poll() is None
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            said = ""
            while "waiting for a call in flight" not in said:
                line = process.stderr.readline()
                assert line, said
                said += line
            process.send_signal(signal.SIGTERM)
            said = process.stderr.read()
        assert process.returncode == 143
        assert said == f"evoforge: interrupted; go on with: evoforge resume mine --store {store}\n"
    with open_store(store) as opened:
        (call,) = [row.call for row in opened.calls("mine")]
    assert (call.usd, call.unsure_usd > 0, "in flight" in call.reason) == (0.0, True, True)


@pytest.mark.parametrize(
    ("kernel", "status", "exit_status", "said"),
    [
        ("add", "CORRECT", 0, ""),
        ("wrong", "WRONG", 1, "out0["),
        ("syntax_error", "BUILD_ERROR", 1, "expected ';'"),
    ],
)
def test_evaluate_says_what_is_wrong_with_a_kernel(
    cli: Cli, tmp_path: Path, kernel: str, status: str, exit_status: int, said: str
) -> None:
    path = task(tmp_path, "x + y")
    text = path.read_text().replace("self, x", "self, x, y").replace("N)]", "N), torch.randn(M, N)]")
    path.write_text(text + EAGER_ALONE)  # which is sooner done than a compile
    done = cli("evaluate", KERNELS / f"{kernel}.cpp", "--task", path, "--json")
    assert done.json["status"] == status or (status == "CORRECT" and done.json["status"] == "TIMING_SUSPECT")
    assert said in done.json["reason"]
    if done.json["status"] == status:
        assert done.status == exit_status


def test_an_operator_that_is_not_covered_is_searched_from_own_kernels(cli: Cli, tmp_path: Path) -> None:
    path = task(tmp_path, "torch.sort(x.flatten()).values")
    path.write_text(path.read_text() + EAGER_ALONE)
    (tmp_path / "sorts.cpp").write_text(SORTS)
    (tmp_path / "broken.cpp").write_text(SORTS.replace("std::sort", "std::srot"))
    store = f"sqlite:///{tmp_path}/e.db"
    done = cli(
        "run", path, "--from", tmp_path / "broken.cpp", "--from", tmp_path / "sorts.cpp", "--evals", 2,
        "--name", "mine", "--store", store, "--json",
    )  # fmt: skip
    assert done.json["stop_reason"] in ("evals", "no generator")
    assert "ended BUILD_ERROR" in done.err and "srot" in done.err
    state = cli("status", "mine", "--store", store, "--json").json
    assert "srot" in state["reasons"]["BUILD_ERROR"]
    assert state["counts"]["BUILD_ERROR"] == 1 and sum(state["counts"].values()) == 2


# One real campaign whose torch.compile fails on a noisy machine, and replays of it


@pytest.fixture(scope="module")
def eager_alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str, str]]:
    """The task, the store and what was said."""
    folder = tmp_path_factory.mktemp("eager")
    path = task(folder, "torch.relu(x) + 1")
    path.write_text(NO_COMPILE + path.read_text())
    store = f"sqlite:///{folder}/e.db"
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        patch.setattr(Judge, "aa_margin", lambda self: 0.2)
        status = main(["run", str(path), "--evals", "2", "--name", "mine", "--store", store])
    assert status in (0, 1), said.getvalue()
    yield path, store, said.getvalue()


def test_a_failing_compile_and_a_noisy_machine_are_flagged(cli: Cli, eager_alone: tuple[Path, str, str]) -> None:
    _, store, said = eager_alone
    assert "note: torch.compile does not work on this task" in said and "/nowhere/g++" in said
    assert "note: this machine is noisy: a binary against itself differs by 15%" in said
    state = cli("status", "mine", "--store", store, "--json").json
    assert state["state"] == "finished" and state["stop_reason"] == "evals" and state["evaluations"] == 2
    assert state["baseline"] == {"default": "eager"}
    assert [text.split(" ", 1)[0] for text in state["notices"]] == ["torch.compile", "this"]


def test_a_task_at_its_bound(
    cli: Cli, eager_alone: tuple[Path, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, recorded, _ = eager_alone
    monkeypatch.setattr(Setup, "at_bound", True)
    store = f"sqlite:///{tmp_path}/e.db"
    run = ("run", path, "--evals", 2, "--replay", recorded, "--store", store)
    done = cli(*run, "--name", "mine")
    assert done.status == 1
    assert "\nnothing to gain: the baseline is at the bound of this machine (default: eager takes" in done.out
    done = cli(*run, "--json")
    assert done.status == 1 and done.json["stop_reason"] == "at_bound" and done.json["evaluations"] == 0
    state = cli("status", "mine", "--store", store, "--json").json
    assert (state["state"], state["stop_reason"]) == ("finished", "at_bound")
    assert sum(text.startswith("nothing to gain") for text in state["notices"]) == 1


def test_a_full_disk_loses_nothing(
    cli: Cli, eager_alone: tuple[Path, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, recorded, _ = eager_alone
    store = f"sqlite:///{tmp_path}/e.db"
    connections: list[sqlite3.Connection] = []
    prepare, on_event = _open._prepare, _progress.Progress.on_event

    def noted(connection: sqlite3.Connection, read_only: bool) -> None:
        prepare(connection, read_only)
        if not read_only:
            connections.append(connection)

    def full_once_it_judges(self: _progress.Progress, event: Any) -> None:
        on_event(self, event)
        if event.kind == "phase" and event.data["text"] == "judging":
            for connection in connections:  # SQLite's own limit: the error is the one of a full disk
                with contextlib.suppress(sqlite3.ProgrammingError):
                    connection.execute("PRAGMA max_page_count=1")

    with monkeypatch.context() as patch:
        patch.setattr(_open, "_prepare", noted)
        patch.setattr(_progress.Progress, "on_event", full_once_it_judges)
        done = cli("run", path, "--evals", 2, "--name", "mine", "--replay", recorded, "--store", store, "--json")
    message = one_sentence(done)
    assert "the disk is full; make room and try again; go on with: evoforge resume mine --store" in message
    assert cli("db", "check", "--store", store).status == 0
    done = cli("resume", "mine", "--store", store, "--json")
    assert done.json["evaluations"] == 2 and done.json["stop_reason"] == "evals"
