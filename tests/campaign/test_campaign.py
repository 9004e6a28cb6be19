"""Whole campaigns on a small task: real kernels, real baselines, a real store."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evoforge.archives import Archive, fold_confirmations
from evoforge.campaign import Campaign, Event, Tickets, bench, elites, lineage, show, status
from evoforge.campaign._loop import Loop
from evoforge.config import Budget, CampaignConfig
from evoforge.core import Kind, Status, Target
from evoforge.errors import EnvironmentChangedError, MissingToolError, NotFoundError, StoreError, UsageError
from evoforge.evaluation.ceilings import measure_ceilings
from evoforge.evaluation.forking import WORKER_NAME
from evoforge.evaluation.tasks import load_task
from evoforge.evaluation.worker import ReferenceWorker
from evoforge.storage import open_store
from evoforge.storage.sql import SqlStore
from tests.campaign.conftest import NO_COMPILE

EVALS = 12  # the first kernels and trials of their parameters may take six


class Recorder:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)


def config(task: Path, **changes: Any) -> CampaignConfig:
    fields: dict[str, Any] = {
        "task": str(task), "budget": Budget(evals=EVALS), "seed": 5, "workers": 3, "tuning": {"trials": 4},
    }  # fmt: skip
    return CampaignConfig(**{**fields, **changes})


@pytest.fixture(scope="module")
def finished(small_task: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any, Recorder]:
    url = f"sqlite:///{tmp_path_factory.mktemp('store')}/evoforge.db"
    recorder = Recorder()
    result = Campaign.create(config(small_task), url).run(recorder)
    return url, result, recorder


def test_a_campaign_ends_with_what_was_asked_for(finished: tuple[str, Any, Recorder]) -> None:
    _, result, recorder = finished
    assert result.exit_code == 0
    assert result.evaluations == EVALS
    assert result.stop_reason == "evals"
    assert result.best is not None
    assert result.best.speedup_eager is not None
    assert result.best.speedup_compiled is not None
    assert result.best.latency_ms is not None
    assert 0 <= result.split["idle_share"] <= 1
    kinds = {event.kind for event in recorder.events}
    assert {"phase", "first", "baseline", "evaluation", "placement", "best", "progress"} <= kinds
    first = next(i for i, event in enumerate(recorder.events) if event.kind == "first")
    chosen = next(i for i, event in enumerate(recorder.events) if event.kind == "baseline")
    assert first < chosen, "the first kernel is shown before the baselines are settled"
    json.dumps(result.to_json())


def test_inputs_on_which_the_task_itself_fails_are_named(small_task: Path, tmp_path: Path) -> None:
    off = "((x.sum(-1) - 1) ** 2 + (residual.sum(-1) - 1) ** 2).unsqueeze(-1)"  # not of rows whose sum is 1
    odd = f"h = torch.sqrt(1 - 1e6 * {off}) * x + residual"
    text = small_task.read_text().replace("h = x + residual", odd)
    (tmp_path / "roots.py").write_text(text.replace("torch.randn(M, N)", "torch.rand(M, N).softmax(-1)") + NO_COMPILE)
    recorder, url = Recorder(), f"sqlite:///{tmp_path}/roots.db"
    result = Campaign.create(config(tmp_path / "roots.py", budget=Budget(evals=3)), url).run(recorder)
    (notice,) = [text for text in result.notices if "itself fails" in text]
    assert notice.startswith("default: ") and "normal" in notice
    assert notice in status(result.campaign, url)["notices"]
    assert notice in [event.data["text"] for event in recorder.events if event.kind == "notice"]


def test_ceilings_of_a_busy_moment_end_no_campaign(
    small_task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(target: Target) -> Target:
        measured = measure_ceilings(target)
        return replace(measured, ceilings={key: value / 100 for key, value in measured.ceilings.items()})

    monkeypatch.setattr("evoforge.evaluation.ceilings.known_ceilings", busy)
    (tmp_path / "task.py").write_text(small_task.read_text() + NO_COMPILE)
    url = f"sqlite:///{tmp_path}/busy.db"
    result = Campaign.create(config(tmp_path / "task.py", budget=Budget(evals=2)), url).run()
    assert (result.stop_reason, result.evaluations) == ("evals", 2)
    assert result.best is not None and result.best.roofline_fraction < 1


def test_the_archive_is_the_fold_of_the_store(finished: tuple[str, Any, Recorder]) -> None:
    url, result, _ = finished
    with open_store(url) as store:
        rows = [row.evaluation for row in store.evaluations(campaign="small-1")]
        assert store.check() == []
    archive = Archive()
    archive.rebuild(fold_confirmations(rows))
    assert len(archive) == result.filled
    assert archive.qd_score == pytest.approx(result.qd_score)
    found = elites("small-1", url)
    assert [tuple(row["cell"]) for row in found] == [elite.cell for elite in archive]
    confirmed = [row for row in rows if row.kind is Kind.CONFIRM and row.status is Status.CORRECT]
    assert all(len({block.process for block in row.timings[0].blocks}) >= 5 for row in confirmed)
    state = status("small-1", url)
    assert state["evaluations"] == EVALS
    assert state["state"] == "finished"
    assert sum(state["counts"].values()) >= EVALS


def test_a_trial_says_what_the_compiler_made_of_it(finished: tuple[str, Any, Recorder]) -> None:
    """A resumed campaign knows by that which texts are one program."""
    url, result, _ = finished
    with open_store(url) as store:
        rows = [row.evaluation for row in store.evaluations(campaign=result.campaign)]
    codes = [row.facts.get("code") for row in rows if row.kind is Kind.TRIAL and row.status is Status.CORRECT]
    assert codes and all(isinstance(code, str) and len(code) >= 16 for code in codes)


def test_every_candidate_names_its_meta_prompt_and_parents(finished: tuple[str, Any, Recorder]) -> None:
    url, result, _ = finished
    with open_store(url) as store:
        prompts = {row.meta_prompt.ref for row in store.meta_prompts("small-1")}
        candidates = store.candidates("small-1")
    named = [candidate for candidate in candidates if candidate.meta_prompt is not None]
    assert named and all(candidate.meta_prompt in prompts for candidate in named)
    assert all(candidate.operator == "sample" for candidate in candidates if candidate not in named), "first kernels"
    shown = show(result.best.candidate[:12], url)
    assert shown["candidate"] == result.best.candidate
    assert "evo_run" in shown["source"]
    tree = lineage(result.best.candidate[:12], url)
    assert tree["nodes"][0]["candidate"] == result.best.candidate


def test_recorded_evaluations_give_the_same_candidates_and_archive(
    finished: tuple[str, Any, Recorder], small_task: Path, tmp_path: Path
) -> None:
    url, result, _ = finished
    again = f"sqlite:///{tmp_path}/again.db"
    replayed = Campaign.create(config(small_task), again, replay=url).run()
    assert replayed.qd_score == result.qd_score
    assert replayed.evaluations == result.evaluations
    with open_store(url) as one, open_store(again) as two:
        assert [c.id for c in one.candidates("small-1")] == [c.id for c in two.candidates("small-1")]
    keys = ("cell", "candidate", "params", "objective", "lower")
    assert [[row[k] for k in keys] for row in elites("small-1", url)] == [
        [row[k] for k in keys] for row in elites("small-1", again)
    ]


def held(folder: Path) -> list[str]:
    """The files under `folder` that this process holds open."""
    links = [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]
    return [link for link in links if link.startswith(str(folder))]


def test_a_replay_that_is_run_again_measures_nothing_and_no_store_stays_open(
    finished: tuple[str, Any, Recorder], small_task: Path, tmp_path: Path
) -> None:
    """Without a limit of evaluations of its own, too: where its recording ends is one."""
    url, result, _ = finished
    recording, recorder = Path(url.removeprefix("sqlite:///")).parent, Recorder()
    campaign = Campaign.create(config(small_task), f"sqlite:///{tmp_path}/again.db", replay=url)
    assert not held(tmp_path)
    campaign.run()
    assert not held(tmp_path) + held(recording)
    campaign.extend(Budget(minutes=30))
    assert campaign.run(recorder).evaluations == result.evaluations
    (notice,) = [event.data["text"] for event in recorder.events if event.kind == "notice"]
    assert f"has had all {EVALS} evaluations that its recording holds; give --evals N" in notice
    assert not held(tmp_path) + held(recording)


@pytest.mark.parametrize("full", [False, True], ids=["", "on a full disk"])
def test_what_a_search_had_to_say_outlives_its_interruption(
    finished: tuple[str, Any, Recorder], small_task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    def run(loop: Loop, *_: object) -> str:
        loop.journey.notice("a model is asked no more")
        if full:
            monkeypatch.setattr(SqlStore, "update_campaign", refuse)
        raise KeyboardInterrupt

    def refuse(*_: object, **__: object) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(Loop, "run", run)
    url = f"sqlite:///{tmp_path}/cut.db"
    with pytest.raises(KeyboardInterrupt):
        Campaign.create(config(small_task), url, replay=finished[0]).run()
    found = status("small-1", url)
    assert found["notices"][-1] == "a model is asked no more"
    assert found["state"] == "interrupted"


def test_a_configuration_that_only_another_version_knows_is_refused_by_name(small_task: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/newer.db"
    made = Campaign.create(config(small_task, name="c"), url)
    with open_store(url) as store:
        store.update_campaign("c", config={**made.row.config, "colour": {"hue": 3}})
    for read in (lambda: Campaign.resume("c", url), lambda: Tickets("c", url)):
        with pytest.raises(EnvironmentChangedError, match=r"campaign c .* another version of evoforge.*\(colour\)"):
            read()


def test_a_miss_stops_a_replay_and_says_how_to_go_on(
    finished: tuple[str, Any, Recorder], small_task: Path, tmp_path: Path
) -> None:
    url, _, _ = finished
    campaign = Campaign.create(config(small_task, seed=6), f"sqlite:///{tmp_path}/miss.db", replay=url)
    with pytest.raises(NotFoundError, match="--replay-extend"):
        campaign.run()


def test_bench_measures_every_elite_again_and_stores_it(finished: tuple[str, Any, Recorder]) -> None:
    url, result, _ = finished
    found = bench("small-1", url)
    assert len(found["rows"]) == result.filled
    assert any(row["status"] == "CORRECT" for row in found["rows"])
    for row in found["rows"]:
        if row["status"] == "CORRECT":
            sides = [row[f"speedup_{side}"] for side in ("eager", "compiled") if row[f"speedup_{side}"] is not None]
            assert row["low"] <= row["speedup_best_baseline"] <= min(sides)
            assert row["speedup_best_baseline"] <= row["high"]
        assert row["speedup_cold"] is None or row["latency_cold_ms"] > 0
        assert {"speedup_hot", "latency_hot_ms", "flags"} <= row.keys()
    with open_store(url) as store:
        assert len(store.evaluations(campaign="small-1", kind=Kind.BENCH)) >= result.filled


def test_a_bench_of_the_top_measures_the_highest_claims(finished: tuple[str, Any, Recorder]) -> None:
    url, _, _ = finished
    claims = {tuple(row["cell"]): row["lower"] for row in elites("small-1", url)}
    found = bench("small-1", url, top=1)
    assert [claims[tuple(row["cell"])] for row in found["rows"]] == [max(claims.values())]


def test_an_existing_name_is_refused(finished: tuple[str, Any, Recorder], small_task: Path) -> None:
    url, _, _ = finished
    with pytest.raises(UsageError, match="small-1"):
        Campaign.create(config(small_task, name="small-1"), url)
    assert not held(Path(url.removeprefix("sqlite:///")).parent)


def test_what_ended_near_its_bound_goes_on_under_another_budget(
    small_task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Searching(Exception):
        pass

    def search(*_: object) -> None:
        raise Searching

    url = f"sqlite:///{tmp_path / 'bound.db'}"
    Campaign.create(config(small_task, name="c"), url).store.update_campaign(
        "c", state="finished", stop_reason="near the bound"
    )
    Campaign.resume("c", url).extend(Budget(evals=EVALS + 1))
    monkeypatch.setattr("evoforge.campaign._campaign.prepare", search)
    with pytest.raises(Searching):
        Campaign.resume("c", url).run()


def test_a_class_that_was_changed_meanwhile_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layers = tmp_path / "layers.py"
    text = "import torch\n\n\nclass Twice(torch.nn.Module):\n    def forward(self, x):\n        return x * 2\n"
    layers.write_text(text)
    monkeypatch.chdir(tmp_path)
    url = f"sqlite:///{tmp_path / 'class.db'}"
    Campaign.create(CampaignConfig(name="c", task="layers:Twice", inputs=["x=f32[8,64]"]), url)
    monkeypatch.chdir("/")
    layers.write_text(text.replace("2", "3"))
    with pytest.raises(EnvironmentChangedError, match="what layers:Twice was, and its source is another now"):
        Campaign.resume("c", url)
    layers.write_text(text)
    Campaign.resume("c", url)


def test_a_helper_of_the_task_that_was_changed_meanwhile_is_refused(tmp_path: Path) -> None:
    helper, path = tmp_path / "helper_of_campaign.py", tmp_path / "task.py"
    helper.write_text("def twice(x):\n    return x * 2\n")
    path.write_text(
        "import torch\nfrom helper_of_campaign import twice\n\n\nclass Model(torch.nn.Module):\n"
        "    def forward(self, x):\n        return twice(x)\n\n\ndef get_inputs():\n    return [torch.randn(8, 64)]\n"
    )
    with ReferenceWorker(load_task(str(path))) as worker:
        imports = worker.analyse("evoforge.evaluation.imported:imported_files", "default")
    assert list(imports) == [str(helper)]
    url = f"sqlite:///{tmp_path / 'helper.db'}"
    made = Campaign.create(CampaignConfig(name="c", task=str(path)), url)
    made.store.update_campaign("c", setup={"imports": imports})
    Campaign.resume("c", url)
    helper.write_text("def twice(x):\n    return x * 3\n")
    with pytest.raises(EnvironmentChangedError, match=r"helper_of_campaign\.py, which it imports, is another now"):
        Campaign.resume("c", url)


def test_a_changed_machine_is_named_and_refused(
    finished: tuple[str, Any, Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, _, _ = finished
    from evoforge.campaign import _checks
    from evoforge.evaluation.targets import resolve_target

    def other_compiler(spec: str) -> Any:
        from dataclasses import replace

        target = resolve_target(spec)
        return replace(target, fingerprint={**target.fingerprint, "compiler": "g++ 99"})

    monkeypatch.setattr(_checks, "resolve_target", other_compiler)
    with pytest.raises(EnvironmentChangedError, match=r"compiler was .* is 'g\+\+ 99'"):
        Campaign.resume("small-1", url)
    assert not held(Path(url.removeprefix("sqlite:///")).parent)


def test_without_a_compiler_that_is_what_is_said(
    finished: tuple[str, Any, Recorder], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And not that the machine is another one."""
    url, _, _ = finished
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(MissingToolError, match=r"expected a C\+\+ compiler"):
        Campaign.resume("small-1", url)


def test_a_replay_that_extends_goes_on_to_its_own_budget(
    finished: tuple[str, Any, Recorder], small_task: Path, tmp_path: Path
) -> None:
    """The recorded one ended before."""
    url, _, _ = finished
    wanted = config(small_task).model_copy(update={"budget": Budget(evals=EVALS + 2)})
    longer = Campaign.create(wanted, f"sqlite:///{tmp_path}/longer.db", replay=url, replay_extend=True)
    assert longer.run().evaluations == EVALS + 2


def test_stopped_at_random_moments_it_still_ends_with_everything(small_task: Path, tmp_path: Path) -> None:
    """Killed twice, then asked to end: by SIGTERM, which is answered as Ctrl-C is (ten kills: benchmarks/kills.py)."""
    task = tmp_path / "small.py"
    task.write_text(small_task.read_text() + NO_COMPILE)
    path = tmp_path / "stopped.db"
    url = f"sqlite:///{path}"
    run = [sys.executable, "-m", "evoforge", "run", str(task), "--evals", "8", "--workers", "3", "--name", "k",
           "--seed", "3", "--store", url, "--json"]  # fmt: skip
    again = [sys.executable, "-m", "evoforge", "resume", "k", "--store", url, "--json"]
    rng = random.Random(1)
    known: set[int] = set()
    for attempt, stop in enumerate([signal.SIGKILL] * 2 + [signal.SIGTERM]):
        with subprocess.Popen(again if attempt else run, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
            # While it starts or once it has judged one or two more, then somewhere in the next one.
            wanted = len(known) + (1 if stop is signal.SIGTERM else rng.choice((1, 2))) if attempt else 0
            while child.poll() is None and rows_of(path) < wanted:
                time.sleep(0.05)
            time.sleep(rng.uniform(0.0, 2.0))
            assert child.poll() is None, "it ended before it could be stopped"
            os.kill(child.pid, stop)
            out, _ = child.communicate(timeout=60)
        assert no_child_is_left()
        with open_store(url) as store:
            now = {row.id for row in store.evaluations(campaign="k")}
            state, wall_s = store.campaign("k").state, store.campaign("k").wall_s
        assert known <= now, "a finished evaluation was lost"
        known = now
        assert wall_s > 0 or not known, "time that was taken counts, however it ended"
        assert child.returncode == (143 if stop is signal.SIGTERM else -9)
        assert state == ("interrupted" if stop is signal.SIGTERM else "running")
    assert "evoforge resume k" in json.loads(out)["error"]["message"]
    done = subprocess.run(again, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["evaluations"] == 8
    with open_store(url) as store:
        rows = [row.evaluation for row in store.evaluations(campaign="k")]
        assert store.check() == []
    assert sum(row.kind is Kind.TRIAL and row.status.charged for row in rows) == 8
    archive = Archive()
    archive.rebuild(fold_confirmations(rows))
    assert archive.qd_score == pytest.approx(result["qd_score"])
    assert no_child_is_left()


def rows_of(path: Path) -> int:
    """Evaluations in a store that another process writes; -1 before it knows a campaign."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            (campaigns,) = connection.execute("SELECT count(*) FROM campaigns").fetchone()
            (rows,) = connection.execute("SELECT count(*) FROM evaluations").fetchone()
    except sqlite3.OperationalError:
        return -1
    return int(rows) if campaigns else -1


def no_child_is_left() -> bool:
    """Among those of these tests, which share a cache: other campaigns may run on this machine."""
    import psutil

    cache = os.environ["EVOFORGE_CACHE"]
    for _ in range(50):
        if not [
            p
            for p in psutil.process_iter(["name", "environ"])
            if p.info["name"] == WORKER_NAME and (p.info["environ"] or {}).get("EVOFORGE_CACHE") == cache
        ]:
            return True
        time.sleep(0.1)
    return False
