"""The commands that read the store."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evoforge.campaign import Best, Result
from evoforge.cli._summary import print_result
from evoforge.core import Block, Candidate, Kind, WorkloadTiming
from evoforge.plots import HeatmapData
from evoforge.storage import open_store
from evoforge.testing.store_suite import a_call

Cli = Callable[..., Any]
PARENT = Candidate("cpp", "// parent\nint evo_run;\n", operator="sample", meta_prompt="bandwidth-first@1")
CHILD = Candidate("cpp", "// child\n", parents=(PARENT.id,), operator="mutate", meta_prompt="one-pass@1")


def test_campaigns_and_status(cli: Cli, store_url: str) -> None:
    (row,) = cli("campaigns", "--store", store_url, "--json").json["campaigns"]
    assert (row["campaign"], row["evaluations"], row["correct"]) == ("first-1", 3, 2)
    assert "first-1" in cli("campaigns", "--store", store_url).out
    named = cli("status", "first-1", "--store", store_url, "--json").json
    assert named["counts"] == {"CORRECT": 2, "WRONG": 1}
    assert (named["filled"], named["reachable"]) == (2, 3)
    assert cli("status", "--store", store_url, "--json").json == named, "without a name: the newest"
    said = cli("status", "--store", store_url).out
    assert "stop reason" in said and "noise" in said and "aa margin" not in said


def test_the_newest_is_found_without_a_look_at_what_the_others_found(cli: Cli, two_campaigns: str) -> None:
    with contextlib.closing(sqlite3.connect(two_campaigns.removeprefix("sqlite:///"))) as raw:
        raw.execute("UPDATE evaluations SET status = 'FINE' WHERE campaign = 'first-1'")
        raw.commit()
    assert cli("campaigns", "--store", two_campaigns).status == 2, "else this shows nothing"
    assert cli("status", "--store", two_campaigns, "--json").json["campaign"] == "second"


def test_what_models_took_can_be_read_afterwards(cli: Cli, store_url: str) -> None:
    assert cli("status", "--store", store_url, "--json").json["models"] == {}
    assert not any("usd" in cli(command, "--store", store_url).out for command in ("status", "campaigns"))
    with open_store(store_url) as store:
        for text in "ab":
            store.record_call("first-1", a_call(text, usd=0.0625))
    for found in (
        cli("status", "--store", store_url, "--json").json,
        *cli("campaigns", "--store", store_url, "--json").json["campaigns"],
    ):
        assert found["usd"] == 0.125
        assert found["models"] == {
            "calls": 2, "requests": 4, "prompt_tokens": 2400, "cached_tokens": 2048, "completion_tokens": 600,
            "seconds": pytest.approx(2 / 3), "unsure_usd": 0.1,
        }  # fmt: skip
    text = cli("status", "--store", store_url).out
    assert "unsure usd 0.1" in text.replace("_", " ") and "0.125" in text
    assert "0.1250" in cli("campaigns", "--store", store_url).out


def test_elites_are_listed_fastest_first(cli: Cli, store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = cli("elites", "first-1", "--store", store_url, "--json").json["elites"]
    assert {tuple(row["cell"]): round(row["speedup"], 1) for row in rows} == {(0, 1, 3): 1.3, (1, 3, 3): 2.0}
    with open_store(store_url) as store:
        times = {"baseline": {"default": "compiled"}, "baseline_ms": {"default": {"eager": 1.5, "compiled": 1.0}}}
        store.update_campaign("first-1", setup={**store.campaign("first-1").setup, **times})
    monkeypatch.setenv("COLUMNS", "200")
    lines = cli("elites", "first-1", "--store", store_url).out.splitlines()
    first = next(at for at, line in enumerate(lines) if CHILD.short_id in line)
    assert first < next(at for at, line in enumerate(lines) if PARENT.short_id in line)
    assert {"1", "3", "2.00×", "3.00×", "mutate", "one-pass@1"} <= set(lines[first].split())


def test_hot_is_shown_beside_warm_where_it_was_measured(cli: Cli, store_url: str) -> None:
    rows = cli("elites", "first-1", "--store", store_url, "--json").json["elites"]
    keys = ("latency_hot_ms", "speedup_hot", "latency_cold_ms", "speedup_cold")
    assert [tuple(row[key] for key in keys) for row in rows] == [(0.5, 0.5, None, None)] * 2
    trial, confirmation = cli("show", CHILD.short_id, "--store", store_url, "--json").json["evaluations"]
    assert tuple(trial[key] for key in keys) == (None,) * 4
    assert tuple(confirmation[key] for key in keys) == (0.5, 0.5, None, None)
    text = cli("show", CHILD.short_id, "--store", store_url).out
    assert "0.50×" in text and "hot" in text and "cold" not in text


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_narrow_terminal_keeps_what_says_what_to_mend(
    cli: Cli, store_url: str, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """The reason of a kernel that failed, whole, once; parameters before what is only of interest."""
    kernel = Candidate("cpp", "// wrong at both\n", operator="sample")
    with open_store(store_url) as store:
        known = store.evaluations(campaign="first-1")[-1].evaluation
        reason = "element 3 of out0 is off by 2, which is more than the 0.0001 that float64 leaves it; see the task"
        rows = [replace(known, candidate=kernel.id, reason=reason, params={"TILE": tile}) for tile in (8, 16)]
        store.record_outcome("first-1", 7, kernel, rows, emitter="generator")
    monkeypatch.setattr("evoforge.cli._output._PIPE_WIDTH", width)
    text = cli("show", kernel.short_id, "--store", store_url).out
    assert text.count(f"WRONG: {reason}\n") == 1
    assert width < 60 or ("TILE=8" in text and "TILE=16" in text)


@pytest.mark.parametrize("prefix", [6, 12, 64])
def test_show_takes_a_prefix(cli: Cli, store_url: str, prefix: int) -> None:
    found = cli("show", CHILD.id[:prefix], "--store", store_url, "--json").json
    assert (found["candidate"], found["source"]) == (CHILD.id, CHILD.source)
    assert [row["status"] for row in found["evaluations"]] == ["CORRECT", "CORRECT"]
    text = cli("show", CHILD.id[:prefix], "--store", store_url).out
    assert text.endswith(CHILD.source) and PARENT.short_id in text


def test_lineage_is_a_tree_of_ancestors(cli: Cli, store_url: str) -> None:
    found = cli("lineage", CHILD.short_id, "--store", store_url, "--json").json
    assert found["edges"] == [{"child": CHILD.id, "parent": PARENT.id}]
    lines = [line for line in cli("lineage", CHILD.short_id, "--store", store_url).out.splitlines() if line.strip()]
    assert lines[0].startswith(CHILD.short_id) and PARENT.short_id in lines[1] and "1.30×" in lines[1]


@pytest.fixture
def two_campaigns(store_url: str) -> str:
    """Another campaign that found the parent much faster, on another task, and never measured the child."""
    with open_store(store_url) as store:
        first = store.campaign("first-1")
        task = replace(first.task, source="another", name="another")
        store.create_campaign(
            "second", task=task, target=first.target, language="cpp", seed=0, config={}, descriptor=first.descriptor
        )
        (trial, _) = store.evaluations(candidate=PARENT.id)
        blocks = tuple(Block(at, 1.0, 9.0, 7.0) for at in range(5))
        timings = (WorkloadTiming("default", "compiled", blocks),)
        store.record_outcome("second", 0, PARENT, [replace(trial.evaluation, task=task.id, timings=timings)])
    return store_url


def test_a_lineage_gives_the_numbers_of_one_campaign(cli: Cli, two_campaigns: str) -> None:
    found = cli("lineage", CHILD.short_id, "--store", two_campaigns, "--json").json
    assert (found["campaign"], [node["campaign"] for node in found["nodes"]]) == ("first-1", ["first-1"] * 2)
    text = cli("lineage", CHILD.short_id, "--store", two_campaigns).out
    assert "1.30×" in text and "7.00×" not in text and "in first-1" not in text, "one: it needs no name"
    assert "7.00×" in cli("lineage", PARENT.short_id, "--store", two_campaigns).out, "who measured it last"
    grandchild = Candidate("cpp", "// grandchild\n", parents=(CHILD.id,), operator="mutate")
    with open_store(two_campaigns) as store:
        row = store.evaluations(campaign="second")[0].evaluation
        store.record_outcome("second", 1, grandchild, [replace(row, candidate=grandchild.id)])
    lines = [line for line in cli("lineage", grandchild.short_id, "--store", two_campaigns).out.splitlines() if line]
    assert [line.rpartition(" · ")[2].strip() for line in lines] == ["in second", "in first-1", "in second"]


def test_show_says_which_campaign_measured_what(cli: Cli, two_campaigns: str) -> None:
    several = cli("show", PARENT.short_id, "--store", two_campaigns).out
    assert "first-1" in several and "second" in several and "campaign" in several
    assert "first-1" not in cli("show", CHILD.short_id, "--store", two_campaigns).out, "one: it needs no column"


@pytest.mark.parametrize("width", [40, 80, 200])
def test_deep_lineages_stay_readable(cli: Cli, store_url: str, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """Of forty generations, each with a sister that is a parent, too."""
    line = [CHILD]
    with open_store(store_url) as store:
        for ticket in range(10, 90, 2):
            sister = Candidate("cpp", f"// sister {ticket}\n", parents=(line[-1].id,), operator="mutate")
            child = Candidate("cpp", f"// {ticket}\n", parents=(line[-1].id, sister.id), operator="cross")
            store.record_outcome("first-1", ticket, sister)
            store.record_outcome("first-1", ticket + 1, child)
            line += [sister, child]
    monkeypatch.setattr("evoforge.cli._output._PIPE_WIDTH", width)
    text = cli("lineage", line[-1].short_id, "--store", store_url).out
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert all(candidate.short_id in text for candidate in [PARENT, *line])
    starts = [at for at, shown in enumerate(lines) if shown.startswith(tuple("0123456789abcdef"))]
    assert [lines[at][:12] for at in starts] == list(dict.fromkeys(lines[at][:12] for at in starts)), "each once"


def test_heatmap_and_export(cli: Cli, store_url: str, tmp_path: Path) -> None:
    drawn = cli("heatmap", "first-1", "-o", tmp_path / "map.svg", "--store", store_url, "--json")
    assert drawn.json["filled"] == 2
    made = cli("export", "first-1", "-o", tmp_path / "mylib", "--store", store_url, "--json")
    assert made.json["kernels"] == 2
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import mylib; print(mylib.best(), mylib.niches())"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "(1, 3, 3) [(1, 3, 3), (0, 1, 3)]\n"
    again = cli("export", "first-1", "-o", tmp_path, "--store", store_url)
    assert again.status == 2


def test_an_export_says_what_elites_says(cli: Cli, store_url: str, tmp_path: Path) -> None:
    """Also once a kernel was measured again, at 1.5 where the search found 2; who is best is the archive's to say."""
    with open_store(store_url) as store:
        known = store.evaluations(candidate=CHILD.id)[-1].evaluation
        blocks = tuple(Block(at, 1.0, 1.6, 1.5) for at in range(5))
        fresh = replace(known, kind=Kind.BENCH, timings=(WorkloadTiming("default", "compiled", blocks),))
        store.record_outcome("first-1", None, None, [fresh])
    made = cli("export", "first-1", "-o", tmp_path / "mylib", "--store", store_url)
    assert "the fastest 1.50×" in made.out
    manifest = json.loads((tmp_path / "mylib" / "manifest.json").read_text())
    told = {row["candidate"]: row for row in cli("elites", "first-1", "--store", store_url, "--json").json["elites"]}
    assert manifest["kernels"][0]["candidate"] == CHILD.id
    for row in manifest["kernels"]:
        one = told[row["candidate"]]
        for ours, theirs in (("speedup", "speedup"), ("speedup_lower", "speedup_low"), ("speedup_eager",) * 2):
            assert row[ours] == one[theirs]
    (node, _) = cli("lineage", CHILD.id, "--store", store_url, "--json").json["nodes"]
    assert node["speedup"] == told[CHILD.id]["speedup"] == pytest.approx(1.5)
    assert "1.50×" in cli("campaigns", "--store", store_url).out
    drawn = cli("heatmap", "first-1", "-o", tmp_path / "map.svg", "--store", store_url)
    assert drawn.status == 0


def test_the_heatmap_frames_the_elite_of_the_highest_bound(
    cli: Cli, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lucky = Candidate("cpp", "// lucky\n", operator="sample")
    with open_store(store_url) as store:
        known = store.evaluations(campaign="first-1")[0].evaluation
        blocks = tuple(Block(at, 1.0, 5.0, speedup) for at, speedup in enumerate([0.5, 1.0, 2.5, 2.5, 4.0]))
        timings = (WorkloadTiming("default", "compiled", blocks),)
        trial = replace(known, candidate=lucky.id, cell=(1, 1, 3), timings=timings)
        store.record_outcome("first-1", 3, lucky, [trial, replace(trial, kind=Kind.CONFIRM)], emitter="generator")
    drawn: list[HeatmapData] = []
    monkeypatch.setattr("evoforge.plots.save_heatmap", lambda data, path: drawn.append(data) or path)
    assert cli("heatmap", "first-1", "-o", tmp_path / "map.png", "--store", store_url).status == 0
    assert max(drawn[0].objectives, key=lambda cell: drawn[0].objectives[cell]) == (1, 1, 3)
    assert drawn[0].best == (1, 3, 3)


def test_db_upgrade_and_check(cli: Cli, store_url: str) -> None:
    assert cli("db", "upgrade", "--store", store_url).status == 0
    sound = cli("db", "check", "--store", store_url, "--json")
    assert (sound.status, sound.json["problems"]) == (0, [])


@pytest.mark.parametrize(
    "argv",
    [
        ["status", "fisrt-1"],
        ["elites", "fisrt-1"],
        ["show", "0123456789ab"],
        ["lineage", "0123456789ab"],
        ["heatmap", "fisrt-1", "-o", "x.png"],
        ["export", "fisrt-1", "-o", "x"],
        ["resume", "fisrt-1"],
        ["bench", "fisrt-1"],
    ],
)
def test_what_is_not_there_is_named(cli: Cli, store_url: str, argv: list[str]) -> None:
    done = cli(*argv, "--store", store_url, "--json")
    assert (done.status, done.json["error"]["type"]) == (2, "NotFoundError")
    assert argv[1] in done.json["error"]["message"]


def test_a_command_to_go_on_with_can_be_pasted(cli: Cli, store_url: str, tmp_path: Path) -> None:
    """A name and a folder with spaces; what is named in errors is on the same store, too."""
    (tmp_path / "my stores").mkdir()
    store = f"sqlite:///{tmp_path}/my stores/e.db"
    name = "it's mine; ok"
    with open_store(store) as opened, open_store(store_url) as filled:
        row = filled.campaign("first-1")
        opened.create_campaign(
            name, task=row.task, target=row.target, language="cpp", seed=0, config=row.config,
            descriptor=row.descriptor, setup=row.setup,
        )  # fmt: skip
    where = f"--store '{store}'"
    said = cli("elites", name, "--store", store).out
    assert said.endswith(f"evoforge resume {shlex.quote(name)} --minutes M {where}\n")
    assert shlex.split(said.partition("go on with: ")[2])[2] == name
    for command in (["export", name, "-o", tmp_path / "made"], ["bench", name]):
        assert f"evoforge resume {shlex.quote(name)} --minutes M (with {where})" in cli(*command, "--store", store).err
    best = Best("ab", (0, 1, 3), None, None, None, None, None, {})
    result = Result(name, "add_one", "cpu", 7, 5, 0.5, 9.0, 1.0, 0.0, "evals", best)
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        print_result(result, store)
    for words in ("resume {} --evals N", "bench {}", "heatmap {} -o map.png", "export {} -o DIR"):
        assert f"evoforge {words.format(shlex.quote(name))} {where}" in text.getvalue()


def test_reading_a_store_that_is_not_there_makes_none(cli: Cli, tmp_path: Path) -> None:
    done = cli("campaigns", "--store", f"sqlite:///{tmp_path}/none/evoforge.db", "--json")
    assert done.status == 2
    assert "evoforge run" in done.json["error"]["message"]
    assert list(tmp_path.iterdir()) == []


def test_json_is_one_object_even_when_numbers_are_missing(cli: Cli, store_url: str) -> None:
    text = cli("show", PARENT.short_id, "--store", store_url, "--json").out
    assert "NaN" not in text and "Infinity" not in text
    json.loads(text, parse_constant=lambda name: pytest.fail(name))


def test_bench_prints_like_beside_like(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim over the campaign's own baseline, eager, is no neighbour of what was measured over the faster side."""
    row = {
        "cell": [0, 1, 3], "candidate": "ab" * 32, "status": "CORRECT", "claimed": 4.0, "claimed_best_baseline": 2.0,
        "speedup_best_baseline": 2.1,
    }  # fmt: skip
    monkeypatch.setattr("evoforge.campaign.bench", lambda *_, **__: {"campaign": "c", "rows": [row]})
    text = cli("bench", "c").out
    assert "2.00×" in text and "2.10×" in text and "4.00×" not in text
    assert "claimed and fresh are over the faster of eager and compiled" in text


@pytest.mark.parametrize(("confidence", "said"), [(0.95, "(95%: 1.20–1.90)"), (0.9, "(90%: 1.20–1.90)")])
def test_an_interval_says_how_sure_it_is(
    capsys: pytest.CaptureFixture[str], store_url: str, confidence: float, said: str
) -> None:
    best = Best("ab", (0, 1, 3), None, None, None, 1.5, None, {}, low=1.2, high=1.9, confidence=confidence)
    print_result(Result("first-1", "add_one", "cpu", 7, 5, 0.5, 9.0, 1.0, 0.0, "evals", best), store_url)
    assert f"1.50× {said} over the faster" in capsys.readouterr().out


def test_who_packs_weights_beforehand_is_held_to_a_torch_that_does(
    capsys: pytest.CaptureFixture[str], store_url: str
) -> None:
    for flags, told in (((), False), (("prepacked",), True)):
        best = Best("ab", (0, 1, 3), None, None, None, 1.5, None, {}, flags=flags)
        print_result(Result("first-1", "add_one", "cpu", 7, 5, 0.5, 9.0, 1.0, 0.0, "evals", best), store_url)
        assert ("with packed weights too" in capsys.readouterr().out) == told


@pytest.mark.parametrize(
    ("ends", "status"),
    [
        ("CORRECT", 0), ("TIMING_SUSPECT", 0), ("HARNESS_ERROR", 0), ("QUARANTINED", 1), ("WRONG", 1),
        ("BUILD_ERROR", 1),
    ],
)  # fmt: skip
def test_bench_exits_1_for_an_elite_that_no_longer_holds(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, ends: str, status: int
) -> None:
    common = {"candidate": "ab", "moved": ends, "flags": ["prepacked"]}
    rows = [{**common, "status": "CORRECT", "cell": [0, 1, 3]}, {**common, "status": ends, "cell": [1, 2, 3]}]
    monkeypatch.setattr("evoforge.campaign.bench", lambda *_, **__: {"campaign": "c", "rows": rows})
    assert cli("bench", "c", "--json").status == status
    said = cli("bench", "c")
    assert said.status == status and (f"no longer hold: cell 1 2 3 ({ends})" in said.out) == bool(status)
    unknown = ends in ("TIMING_SUSPECT", "HARNESS_ERROR")
    assert (f"could not be measured: cell 1 2 3 ({ends})" in said.out) == unknown
    assert "packed weights" in " ".join(said.out.split())
