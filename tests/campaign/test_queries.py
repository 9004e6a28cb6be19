"""What is said of a campaign afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from evoforge.archives.descriptor import Descriptor
from evoforge.campaign import campaigns, elites, status
from evoforge.core import (
    Block,
    Candidate,
    Evaluation,
    Kind,
    MetaPrompt,
    Status,
    Strategy,
    Target,
    Task,
    Workload,
    WorkloadTiming,
)
from evoforge.storage import open_store


@pytest.mark.parametrize(("compiled_ms", "said"), [(2.0, 2.0), (8.0, 4.0), (None, None)])
def test_the_speed_up_over_the_better_of_both_is_over_the_better_of_both(
    tmp_path: Path, compiled_ms: float | None, said: float | None
) -> None:
    """The campaign's baseline is eager, at 4 ms; its kernel takes 1."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    stored(url, "c", Candidate("cpp", "int it;"), compiled_ms)
    (row,) = campaigns(url)
    assert row["speedup_best_baseline"] == (said if said is None else pytest.approx(said))


def test_an_elite_names_who_proposed_it_here(tmp_path: Path) -> None:
    """One text in two campaigns: what won in the first was tried early in the second."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    stored(url, "first", Candidate("cpp", "int it;", operator="mutate", meta_prompt="plain@1"))
    stored(url, "second", Candidate("cpp", "int it;", operator="transfer", meta_prompt="other@2"))
    told = [(row["operator"], row["meta_prompt"]) for name in ("first", "second") for row in elites(name, url)]
    assert told == [("mutate", "plain@1"), ("transfer", "other@2")]


_RUNS = """
import sys
from evoforge.storage import open_store

with open_store(sys.argv[1], create=False) as store, store.lock_campaign("c"):
    store.update_campaign("c", state="running", stop_reason="")
    print("running", flush=True)
    sys.stdin.read()
"""


def test_a_campaign_that_was_killed_is_not_listed_as_running(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    stored(url, "c", Candidate("cpp", "int it;"))
    command = [sys.executable, "-c", _RUNS, url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "running\n"
        assert (campaigns(url)[0]["state"], status("c", url)["stop_reason"]) == ("running", None)
        process.kill()
    found = status("c", url)
    assert (campaigns(url)[0]["state"], found["state"]) == ("interrupted", "interrupted")
    assert "without a word, as far as this machine can tell" in found["stop_reason"]
    with open_store(url) as store, store.lock_campaign("c"):
        assert status("c", url)["state"] == "running", "somebody goes on with it"


def stored(url: str, campaign: str, kernel: Candidate, compiled_ms: float | None = None) -> None:
    """A campaign against eager, at 4 ms, with one confirmed kernel of 1 ms."""
    task, target = Task("t", "x = 1", (Workload("default"),)), Target("cpu", "cpu", 1, "native", {})
    with open_store(url) as store:
        store.create_campaign(
            campaign, task=task, target=target, language="cpp", seed=0, config={"baseline": "eager"},
            descriptor=Descriptor().to_json(),
            setup={
                "baseline": {"default": "eager"}, "baseline_ms": {"default": {"eager": 4.0, "compiled": compiled_ms}},
            },
        )  # fmt: skip
        if kernel.meta_prompt is not None:
            name, _, version = kernel.meta_prompt.partition("@")
            store.add_meta_prompt(campaign, MetaPrompt(name, int(version), "cpp", Strategy(), {}))
        blocks = tuple(Block(process, 1.0, eager_ms=4.0) for process in range(5))
        rows = [
            Evaluation(
                kernel.id, {}, task.id, target.id, Status.CORRECT, kind,
                timings=(WorkloadTiming("default", "eager", blocks),), cell=(1, 1, 1),
            )
            for kind in (Kind.TRIAL, Kind.CONFIRM)
        ]  # fmt: skip
        store.record_outcome(campaign, 0, kernel, rows, emitter="sample")
