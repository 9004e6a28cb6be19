"""The self-test's fixtures are sound, and a sample of them is really judged."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from evoforge.core import Candidate, Evaluation, Kind, Status
from evoforge.errors import UsageError
from evoforge.evaluation.targets import resolve_target
from evoforge.evaluation.tasks import load_task
from evoforge.selftest import Fixture, Outcome, Report, load_fixtures, parse_fixture, run_suite, task_path

HEADER = "// task: add\n// expect: WRONG | SCREENED\n// tries: nothing\n"

# One or two of every class, each of them cheap.
SAMPLE = {
    "does_nothing", "skips_the_tail", "writes_past_the_end", "writes_an_input", "exits_at_once", "segmentation_fault",
    "flush_to_zero_left_on", "opens_a_file", "constructor", "includes_a_file", "negative_workspace", "throws",
    "system_call_instruction", "add_plain", "add_omp_tasks", "add_workspace", "add_flush_to_zero_restored",
    "shortcut_by_the_workspace", "zeros_after_many_calls", "weights_turned_once",
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    if "EVOFORGE_CACHE" in os.environ:
        yield
        return
    os.environ["EVOFORGE_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    del os.environ["EVOFORGE_CACHE"]


def fixture_of(source: str, *, attack: bool = True) -> Fixture:
    return parse_fixture("some", source, attack=attack)


def outcome_of(fixture: Fixture, status: str, gain: float | None = None) -> Outcome:
    return Outcome(fixture, status, "", 0.0, gain)


def test_a_header_is_read() -> None:
    found = fixture_of(HEADER + '#include "evoforge.h"\n// twin: too late\n')
    assert found.attack and found.task == "add" and found.tries == "nothing" and found.twin is None
    assert found.expect == {Status.WRONG, Status.SCREENED}
    assert found.candidate.source.startswith("// task: add")
    assert fixture_of("// twin: add_plain\n" + HEADER).twin == "add_plain"


@pytest.mark.parametrize(
    ("source", "attack", "said"),
    [
        ("// task: add\n// tries: x\n", True, "'expect'"),
        (HEADER + "// tries: twice\n", True, "once"),
        (HEADER + "// color: red\n", True, "color"),
        (HEADER.replace("WRONG", "WRONGLY"), True, "WRONGLY"),
        (HEADER.replace("WRONG", "CORRECT"), True, "refused"),
        (HEADER, False, "CORRECT"),
    ],
)
def test_a_bad_header_is_refused(source: str, attack: bool, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        fixture_of(source, attack=attack)


def test_the_shipped_fixtures_are_sound() -> None:
    fixtures = load_fixtures()
    names = [fixture.name for fixture in fixtures]
    assert len(names) == len(set(names))
    assert sum(fixture.attack for fixture in fixtures) >= 60
    assert sum(not fixture.attack for fixture in fixtures) >= 40
    assert set(names) >= SAMPLE
    honest = {fixture.name: fixture.task for fixture in fixtures if not fixture.attack}
    for fixture in fixtures:
        assert "evo" in fixture.source
        assert fixture.twin is None or honest[fixture.twin] == fixture.task
    assert len({fixture.candidate.id for fixture in fixtures}) == len(fixtures)


@pytest.mark.parametrize("name", sorted({fixture.task for fixture in load_fixtures()}))
def test_the_tasks_are_tasks(name: str) -> None:
    assert load_task(str(task_path(name))).name == name


def test_fixtures_are_chosen_by_pattern() -> None:
    assert {fixture.name for fixture in load_fixtures("*pthread*")} == {"add_pthreads", "detached_pthread"}
    assert not any(fixture.attack for fixture in load_fixtures("honest/*"))
    with pytest.raises(UsageError, match="attacks/"):
        load_fixtures("no_such_thing")
    with pytest.raises(UsageError, match="add"):
        task_path("no_such_task")


def test_what_counts_as_success_and_as_rejection() -> None:
    attack, honest = fixture_of(HEADER), fixture_of(HEADER.replace("WRONG | SCREENED", "CORRECT"), attack=False)
    right = [outcome_of(attack, "WRONG"), outcome_of(attack, "CORRECT", 1.1), outcome_of(honest, "CORRECT")]
    assert not any(one.failed or one.unexpected for one in right)
    other = outcome_of(attack, "CRASH")
    assert other.unexpected and not other.failed
    bad = [
        outcome_of(attack, "CORRECT"), outcome_of(attack, "CORRECT", 2.0), outcome_of(attack, "HARNESS_ERROR"),
        outcome_of(attack, "BROKEN"), outcome_of(honest, "TIMING_SUSPECT"), outcome_of(honest, "BROKEN"),
    ]  # fmt: skip
    assert all(one.failed and one.unexpected for one in bad)
    report = Report((*right, other, *bad))
    assert (report.attacks, report.succeeded, report.honest, report.rejected) == (7, 4, 3, 2)
    assert not report.holds and Report((*right, other)).holds


def test_a_sample_is_judged() -> None:
    fixtures = [fixture for fixture in load_fixtures() if fixture.name in SAMPLE]
    seen: list[Outcome] = []
    report = run_suite(fixtures, resolve_target("cpu:threads=1"), observe=seen.append)
    assert [one.fixture.name for one in seen] == [one.fixture.name for one in report.outcomes]
    wrong = {
        one.fixture.name: (one.status, one.reason)
        for one in report.outcomes
        if one.unexpected and one.status != Status.TIMING_SUSPECT  # a busy machine
    }
    assert not wrong
    assert len(report.outcomes) == len(SAMPLE)
    assert report.sandboxes


def test_a_broken_judge_loses_one_fixture_only(monkeypatch: pytest.MonkeyPatch) -> None:
    from evoforge.selftest import suite

    class Fake:
        """A judge that stumbles over one kernel."""

        def __init__(self, *_: object, **__: object) -> None: ...
        def __enter__(self) -> Fake:
            return self

        def __exit__(self, *_: object) -> None: ...
        def open(self) -> None: ...
        def wait_compiled(self, _: float) -> str:
            return "ready"

        def trial(self, candidate: Candidate, *_: object, **__: object) -> Evaluation:
            if "nothing at all" in candidate.source:
                raise RuntimeError("stumbled")
            return Evaluation(candidate.id, {}, "task", "cpu", Status.WRONG, Kind.TRIAL)

    monkeypatch.setattr(suite, "Judge", Fake)
    fixtures = [fixture_of(HEADER.replace("nothing", what)) for what in ("one", "nothing at all", "two")]
    report = run_suite(fixtures, resolve_target("cpu:threads=1"), repeat=2)
    assert [one.status for one in report.outcomes] == ["WRONG", "BROKEN", "WRONG"] * 2
    assert "stumbled" in report.outcomes[1].reason
    assert report.succeeded == 2
    with pytest.raises(UsageError, match="strict"):
        run_suite(fixtures, resolve_target("cpu:threads=1"), sandbox="total")


def test_fixtures_travel_with_the_package() -> None:
    import evoforge.selftest

    home = Path(evoforge.selftest.__file__).parent
    assert len(list(home.glob("attacks/*.cpp"))) + len(list(home.glob("honest/*.cpp"))) == len(load_fixtures())
