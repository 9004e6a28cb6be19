"""`run` up to the point where something is measured: what a user can get wrong, and --dry-run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from evoforge.campaign import Campaign, Result
from evoforge.errors import StoreError
from evoforge.storage import open_store

Cli = Callable[..., Any]


def experiment(folder: Path, **values: object) -> Path:
    path = folder / "trial.yaml"
    path.write_text(yaml.safe_dump({"tasks": ["add_one.py"], **values}))
    return path


def test_dry_run_prints_the_merged_campaign_and_makes_nothing(cli: Cli, task_file: Path) -> None:
    path = experiment(task_file.parent, budget={"minutes": 5}, set={"M": 8}, seed=1)
    store = f"sqlite:///{task_file.parent}/new/e.db"
    (plan,) = cli(
        "run", path, "--evals", 7, "--seed", 3, "--set", "M=32", "--target", "cpu:threads=1", "--name", "mine",
        "--workers", 2, "--store", store, "--dry-run", "--json",
    ).json["campaigns"]  # fmt: skip
    assert plan["budget"] == {"minutes": 5, "evals": 7, "usd": 0, "tokens": None, "calls": None}
    assert (plan["seed"], plan["set"], plan["target"], plan["name"], plan["workers"]) == (
        3,
        {"M": 32},
        "cpu:threads=1",
        "mine",
        2,
    )
    assert plan["workloads"] == ["default"]
    assert not (task_file.parent / "new").exists()
    assert yaml.safe_load(cli("run", path, "--dry-run", "--store", store).out)["seed"] == 1


def test_a_bare_task_is_enough(cli: Cli, task_file: Path) -> None:
    (plan,) = cli("run", task_file, "--dry-run", "--json").json["campaigns"]
    assert plan["budget"]["minutes"] == 3
    (plan,) = cli("run", task_file, "--evals", 9, "--dry-run", "--json").json["campaigns"]
    assert plan["budget"] == {"minutes": None, "evals": 9, "usd": 0, "tokens": None, "calls": None}


def test_a_file_without_a_budget_is_as_good_as_a_bare_task(cli: Cli, task_file: Path) -> None:
    path = experiment(task_file.parent)
    (plan,) = cli("run", path, "--dry-run", "--json").json["campaigns"]
    assert (plan["budget"]["minutes"], plan["budget"]["evals"]) == (3, None)
    (plan,) = cli("run", path, "--evals", 9, "--dry-run", "--json").json["campaigns"]
    assert (plan["budget"]["minutes"], plan["budget"]["evals"]) == (None, 9)


def test_an_option_collapses_its_axis_of_the_grid(cli: Cli, task_file: Path) -> None:
    path = experiment(task_file.parent, targets=["cpu", "cpu:threads=1"])
    assert len(cli("run", path, "--dry-run", "--json").json["campaigns"]) == 2
    (plan,) = cli("run", path, "--dry-run", "--json", "--target", "cpu").json["campaigns"]
    assert plan["target"] == "cpu"
    for target in ("cpu:threads=1", "cpu:isa=x86-64-v2"):
        named = experiment(task_file.parent, targets=["cpu", "cpu:threads=1"], name="grid")
        (plan,) = cli("run", named, "--dry-run", "--json", "--target", target).json["campaigns"]
        assert (plan["target"], plan["name"]) == (target, f"grid-add_one-{target}"), "as the whole grid would name it"
    path = experiment(task_file.parent, targets=["cpu", "cpu:threads=1"])
    named = cli("run", path, "--dry-run", "--name", "x")
    assert named.status == 2 and "2" in named.err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--evals", "-1"], "--evals"),
        (["--minutes", "-1"], "--minutes"),
        (["--seed", "-1"], "--seed"),
        (["--set", "N=3"], "'N'"),
        (["--set", "M"], "NAME=VALUE"),
        (["--target", "tpu"], "tpu"),
        (["--language", "fortran"], "fortran"),
        (["--from", "nowhere.cpp"], "nowhere.cpp"),
        (["--replay-extend"], "--replay"),
        (["--input", "x=f32[8]"], "--input"),
    ],
)
def test_wrong_options_are_named_before_anything_is_spent(
    cli: Cli, task_file: Path, argv: list[str], said: str
) -> None:
    store = f"sqlite:///{task_file.parent}/new/e.db"
    done = cli("run", task_file, "--store", store, *argv, "--json")
    assert done.status == 2
    assert said in done.json["error"]["message"]
    assert not (task_file.parent / "new" / "e.db").exists()


def test_wrong_files_are_named(cli: Cli, task_file: Path) -> None:
    folder = task_file.parent
    assert "no file" in cli("run", folder / "missing.py").err
    assert "missing.yaml" in cli("run", folder / "missing.yaml").err
    typo = experiment(folder, bugdet={"minutes": 1})
    assert "did you mean 'budget'" in cli("run", typo).err
    (folder / "broken.py").write_text("def get_inputs(:\n")
    assert "broken.py:1" in cli("run", folder / "broken.py").err


def test_a_mistake_in_the_last_task_is_told_before_the_first_one_runs(cli: Cli, task_file: Path) -> None:
    store = f"sqlite:///{task_file.parent}/e.db"
    path = experiment(task_file.parent, tasks=["add_one.py", "missing.py"], budget={"evals": 1})
    assert "missing.py" in cli("run", path, "--store", store).err
    assert not (task_file.parent / "e.db").exists()


def test_a_task_that_cannot_be_searched_does_not_keep_the_next_one_waiting(cli: Cli, task_file: Path) -> None:
    folder = task_file.parent
    (folder / "gamma.py").write_text(task_file.read_text().replace("x + 1", "torch.erfinv(x)"))
    path = experiment(folder, tasks=["gamma.py", "add_one.py"], budget={"evals": 1})
    done = cli("run", path, "--store", f"sqlite:///{folder}/e.db", "--json")
    refused, found = done.json["campaigns"]
    assert done.status == 2 and "aten.erfinv" in done.err
    assert refused["error"]["type"] == "UnsupportedError" and refused["campaign"] == "gamma-1"
    assert found["evaluations"] == 1 and found["best"]["confidence"] in (0.9, 0.95)
    named = experiment(folder, tasks=["gamma.py", "add_one.py"], name="grid", budget={"evals": 1})
    store = f"sqlite:///{folder}/e.db"
    assert cli("run", named, "--store", store, "--json").json["campaigns"][1]["campaign"] == "grid-add_one"
    again = cli("run", named, "--store", store)
    assert again.status == 2 and "grid-add_one" in again.err and "evoforge resume" in again.err


@pytest.mark.parametrize(
    ("stop", "status", "kind"),
    [(KeyboardInterrupt(), 130, "Interrupted"), (StoreError("the disk is full; make room"), 2, "StoreError"),
     (ZeroDivisionError("by nothing"), 2, "ZeroDivisionError")],
)  # fmt: skip
def test_what_ends_a_grid_loses_no_finished_result(
    cli: Cli, task_file: Path, monkeypatch: pytest.MonkeyPatch, stop: BaseException, status: int, kind: str
) -> None:
    (task_file.parent / "second.py").write_text(task_file.read_text())
    path = experiment(task_file.parent, tasks=["add_one.py", "second.py"], budget={"evals": 1})

    def run(campaign: Campaign, _: object) -> Result:
        if campaign.row.task.name == "second":
            raise stop
        return Result(campaign.name, "add_one", "cpu", 7, 5, 0.5, 9.0, 1.0, 0.0, "evals", None)

    monkeypatch.setattr(Campaign, "run", run)
    store = f"sqlite:///{task_file.parent}/e.db"
    done = cli("run", path, "--store", store, "--json")
    assert done.status == status
    (first,) = done.json["campaigns"]
    assert (first["campaign"], first["evaluations"]) == ("add_one-1", 7)
    assert done.json["error"]["type"] == kind
    assert kind != "Interrupted" or done.json["error"]["message"].endswith(f"evoforge resume second-1 --store {store}")


def test_a_name_that_exists_is_refused(cli: Cli, task_file: Path, store_url: str) -> None:
    done = cli("run", task_file, "--name", "first-1", "--store", store_url, "--json")
    assert done.status == 2
    assert "first-1" in done.json["error"]["message"]
    assert len(cli("campaigns", "--store", store_url, "--json").json["campaigns"]) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_read_only_folder_is_named(cli: Cli, task_file: Path) -> None:
    folder = task_file.parent / "closed"
    folder.mkdir(mode=0o500)
    assert "--store" in cli("run", task_file, "--store", f"sqlite:///{folder}/deep/e.db").err


def test_a_place_for_the_store_that_cannot_be_is_named(cli: Cli, task_file: Path) -> None:
    done = cli("run", task_file, "--store", f"sqlite:///{task_file}/e.db")
    assert done.status == 2 and "--store" in done.err and len(done.err.strip().splitlines()[-1:]) == 1


def test_ctrl_c_leaves_a_campaign_that_can_be_resumed(cli: Cli, task_file: Path) -> None:
    store = f"sqlite:///{task_file.parent}/e.db"
    command = [sys.executable, "-m", "evoforge", "run", str(task_file), "--name", "mine", "--store", store]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        said = ""
        while "starting the reference" not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        process.send_signal(signal.SIGINT)
        said += process.stderr.read()
        assert process.stdout.read() == ""
    assert process.returncode == 130
    assert said.endswith(f"evoforge: interrupted; go on with: evoforge resume mine --store {store}\n")
    assert "Traceback" not in said
    assert cli("status", "mine", "--store", store, "--json").json["state"] == "interrupted"


def test_models_and_their_budget_come_from_the_command_line(cli: Cli, task_file: Path) -> None:
    local = "http://127.0.0.1:9/v1"
    path = experiment(
        task_file.parent,
        models=[
            {"model": "openai/kept", "api_base": local, "max_tokens": 77},
            {"model": "openai/left", "api_base": local},
        ],
        budget={"evals": 5},
    )
    argv = ["run", path, "--dry-run", "--json", "--usd", 1.5, "--tokens", 9000, "--calls", 70]
    (plan,) = cli(*argv, "--model", "openai/kept", "--model", "openai/new", "--api-base", "http://localhost:8/v1").json[
        "campaigns"
    ]
    assert [(one["model"], one["api_base"], one["max_tokens"]) for one in plan["models"]] == [
        ("openai/kept", "http://localhost:8/v1", 77),
        ("openai/new", "http://localhost:8/v1", 8192),
    ]
    assert plan["budget"] == {"minutes": None, "evals": 5, "usd": 1.5, "tokens": 9000, "calls": 70}
    (plan,) = cli(*argv).json["campaigns"]
    assert [one["model"] for one in plan["models"]] == ["openai/kept", "openai/left"]
    for argv, said in (
        (["--api-base", local], "--model"),
        (["--usd", -1], "--usd"),
        (["--tokens", 0], "--tokens"),
        (["--calls", 0], "--calls"),
        (["--model", "openai/x", "--api-base", "ftp://x"], "http"),
    ):
        done = cli("run", task_file, "--dry-run", "--json", *argv)
        assert done.status == 2 and said in done.json["error"]["message"]


def test_a_dry_run_says_who_would_get_what(cli: Cli, task_file: Path) -> None:
    priced = {"usd_per_mtok_in": 1, "usd_per_mtok_out": 2}
    far = experiment(
        task_file.parent,
        budget={"usd": 1},
        models=[{"model": "openai/x", "api_base": "https://models.example/v1", **priced}],
    )
    done = cli("run", far, "--dry-run")
    assert done.status == 0 and "models.example" in done.out and "the task's source" in done.out
    assert "return x + 1" in done.out and "evo_run" in done.out and "at run time" in done.out
    assert str(task_file.parent) not in done.out.partition("the first text")[2]
    quiet = cli("run", far, "--dry-run", "--json").json["campaigns"][0]
    assert quiet["told"].keys() == {"notice", "system", "user", "later"}
    near = cli("run", task_file, "--model", "openai/x", "--api-base", "http://127.0.0.1:9/v1", "--dry-run").out
    assert "nothing leaves this machine" in near
    assert "told" not in cli("run", task_file, "--dry-run", "--json").json["campaigns"][0]


def test_a_campaign_is_given_other_limits(cli: Cli, task_file: Path) -> None:
    store = f"sqlite:///{task_file.parent}/e.db"
    assert cli("run", task_file, "--name", "mine", "--evals", 0, "--store", store, "--json").json["evaluations"] == 0
    wrong = cli("resume", "mine", "--minutes", -1, "--store", store)
    assert wrong.status == 2 and "--minutes" in wrong.err
    assert cli("resume", "mine", "--tokens", 9, "--store", store, "--json").json["evaluations"] == 0, "prepared still"
    first = cli("resume", "mine", "--evals", 1, "--calls", 8, "--store", store, "--json").json
    assert (first["evaluations"], first["stop_reason"]) == (1, "evals")
    with open_store(store) as opened:
        assert opened.campaign("mine").config["budget"]["calls"] == 8
        rows, spent_s = len(opened.evaluations()), opened.campaign("mine").wall_s
    again = cli("resume", "mine", "--store", store, "--json")
    assert (again.status, again.json["best"]) == (0 if first["best"] else 1, first["best"])
    assert "campaign mine is finished, nothing was measured: it may take 1 evals in all" in again.err
    assert "give --evals N (in all) to go on" in again.err
    with open_store(store) as opened:
        assert (len(opened.evaluations()), opened.campaign("mine").wall_s) == (rows, spent_s)
    more = cli("resume", "mine", "--evals", 2, "--store", store, "--json")
    assert more.json["evaluations"] == 2 and "] best: " in more.err, "what was found before is shown"
    spent = cli("resume", "mine", "--minutes", 9, "--store", store)
    assert spent.status == 2 and "2 evals in all and has had 2 evaluations" in spent.err and "--evals" in spent.err


def test_a_plan_needs_no_key(cli: Cli, task_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--dry-run shows what would leave this machine, before anybody has a key."""
    monkeypatch.delenv("A_KEY", raising=False)
    model = {
        "model": "openai/x", "api_base": "https://models.example/v1", "api_key_env": "A_KEY",
        "usd_per_mtok_in": 1, "usd_per_mtok_out": 5,
    }  # fmt: skip
    path = experiment(task_file.parent, models=[model], budget={"usd": 1})
    (plan,) = cli("run", path, "--dry-run", "--json").json["campaigns"]
    assert "x + 1" in plan["told"]["system"] + plan["told"]["user"]
    refused = cli("run", path, "--store", f"sqlite:///{task_file.parent}/e.db")
    assert refused.status == 2 and "A_KEY" in refused.err
