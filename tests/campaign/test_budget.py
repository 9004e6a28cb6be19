"""What ends a campaign, live and replayed."""

from evoforge.campaign._budget import Clock
from evoforge.core import Evaluation, Kind, Status


def row(kind: Kind, seconds: float = 1.0) -> Evaluation:
    return Evaluation(
        candidate="c", params={}, task="t", target="cpu", status=Status.WRONG, kind=kind, seconds={"time": seconds}
    )


def test_a_live_campaign_doubts_while_it_may_search() -> None:
    clock = Clock(evals=3, budget_s=None)
    assert clock.may_doubt(2)
    assert not clock.may_doubt(3)


def test_a_replay_doubts_exactly_as_often_as_its_campaign_did() -> None:
    """That one may have been cut off by the wall clock, after its last evaluation or after what followed it."""
    clock = Clock(evals=None, budget_s=60.0, replay=True, ends_at=3, confirms=2)
    assert clock.stop_reason(3) == "evals"
    assert clock.may_doubt(3)
    clock.note(row(Kind.CONFIRM))
    clock.note(row(Kind.TRIAL))
    assert clock.may_doubt(3)
    clock.note(row(Kind.CONFIRM))
    assert not clock.may_doubt(2)


def test_a_replay_of_what_ran_out_of_ideas_is_not_cut_off() -> None:
    clock = Clock(evals=None, budget_s=1.0, replay=True, ends_at=float("inf"), confirms=0)
    clock.note(row(Kind.TRIAL, seconds=5.0))
    assert clock.stop_reason(10**6) == ""


def test_confirmations_go_on_while_there_is_time() -> None:
    assert Clock(evals=3, budget_s=None).in_time and Clock(evals=None, budget_s=60.0).in_time
    assert not Clock(evals=None, budget_s=60.0, spent_s=61.0).in_time
    replay = Clock(evals=None, budget_s=1.0, spent_s=61.0, replay=True, confirms=1)
    assert replay.in_time
    replay.note(row(Kind.CONFIRM))
    assert not replay.in_time


def test_a_search_without_limits_has_come_as_far_as_one_of_6000_evaluations() -> None:
    endless = Clock(evals=None, budget_s=None)
    assert [endless.progress(at) for at in (0, 3000, 6000, 60_000)] == [0.0, 0.5, 1.0, 1.0]
    assert [Clock(evals=limit, budget_s=None).progress(3000) for limit in (4000, 60_000)] == [0.75, 0.5]


def test_the_race_at_the_end_is_kept_time_for() -> None:
    """At most 20 s, and a fifteenth of the budget; without one a quarter of what was measured, 5 s at least."""
    unlimited = [Clock(evals=3, budget_s=None, recorded_s=measured).race_s for measured in (16.0, 40.0, 600.0)]
    assert unlimited == [5.0, 10.0, 20.0] and Clock(evals=None, budget_s=3600.0).race_s == 20.0
    assert Clock(evals=None, budget_s=180.0).race_s == 12.0
    assert Clock(evals=None, budget_s=180.0, spent_s=157.0, reserve_s=10.0).stop_reason(0) == ""
    assert Clock(evals=None, budget_s=180.0, spent_s=159.0, reserve_s=10.0).stop_reason(0) == "minutes"
