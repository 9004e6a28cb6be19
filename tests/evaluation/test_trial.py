from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from evoforge.core import Candidate, Evaluation, Status, Target
from evoforge.evaluation.briefs import Briefs
from evoforge.evaluation.judge import Judge
from evoforge.evaluation.tasks import load_task
from evoforge.evaluation.timing import Stopwatch

SUSPECT = "twice the calls do not take twice the time"
TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, a, b):
        return a + b

def get_inputs():
    return [torch.randn(37, 61), torch.randn(37, 61)]

def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory, one_thread: Target) -> Iterator[Judge]:
    path = tmp_path_factory.mktemp("task") / "add.py"
    path.write_text(TASK)
    with Judge(load_task(str(path)), one_thread, seed=1) as opened:
        opened.open()
        yield opened


@pytest.mark.parametrize(
    ("agree", "suspect"),
    [
        ("yyyyn", False),
        ("ynyyn" + "yy", False),
        ("ynyyn" + "yn", True),
        ("nnnnn" + "yy", True),
    ],
)
def test_times_are_disbelieved_where_more_than_a_third_of_the_processes_say_so(
    judge: Judge, kernel: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, agree: str, suspect: bool
) -> None:
    found, asked = answered(agree, monkeypatch, lambda: judge.confirm(Candidate("cpp", kernel("add")), {}))
    assert (SUSPECT in found.reason) == suspect
    assert asked == len(agree), "two more where more than a third disagreed, else none"
    if not suspect:
        processes = {block.process for block in found.timings[0].blocks}
        assert len(processes) >= len(agree), "a kernel cannot be honest in those only that are not timed"


@pytest.mark.parametrize(("agree", "suspect"), [("y", False), ("nyy", False), ("nyn", True)])
def test_a_trial_of_one_process_asks_two_more(
    judge: Judge, kernel: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, agree: str, suspect: bool
) -> None:
    found, asked = answered(
        agree, monkeypatch, lambda: judge.trial(Candidate("cpp", kernel("add")), {}, wanted_facts=False)
    )
    assert (SUSPECT in found.reason) == suspect
    assert asked == len(agree)


def answered(agree: str, monkeypatch: pytest.MonkeyPatch, attempt: Callable[[], Evaluation]) -> tuple[Evaluation, int]:
    """What comes of an attempt whose processes agree with themselves (y) or not (n), and how many were asked."""
    answers = iter(agree)
    asked = 0

    def agrees(watch: Stopwatch, *, parting: bool = False) -> bool:
        nonlocal asked
        asked += 1
        return next(answers) == "y"

    monkeypatch.setattr(Stopwatch, "agrees", agrees)
    return attempt(), asked


@pytest.mark.parametrize(("reasons", "suspect"), [(["skips", ""], False), (["skips", "skips"], True), ([""], False)])
def test_who_is_suspect_is_asked_again(
    judge: Judge, kernel: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, reasons: list[str], suspect: bool
) -> None:
    """Beside what writing costs by then: a neighbour who makes it dear for seconds is no sign of a cheat."""
    waiting = iter(reasons)
    monkeypatch.setattr(Stopwatch, "agrees", lambda watch, **_: True)
    monkeypatch.setattr(Briefs, "undecided", property(lambda briefs: len(briefs._watched) < 2))
    monkeypatch.setattr(Briefs, "reason", property(lambda briefs: next(waiting)))
    found = judge.confirm(Candidate("cpp", kernel("add")), {}, processes=2)
    if found.status is Status.CORRECT and len(reasons) > 1:
        assert not {0, 1} & {block.process for block in found.timings[0].blocks}, "what made it suspect does not count"
    assert (found.reason == "skips") == suspect
    assert (found.status is Status.TIMING_SUSPECT) == suspect
    assert next(waiting, None) is None
