"""Whole campaigns whose kernels come from models: a real server on loopback, real calls, real kernels."""

from __future__ import annotations

import itertools
import math
import re
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from evoforge.campaign import Campaign, Event
from evoforge.campaign._models import desk_of
from evoforge.config import Budget, CampaignConfig
from evoforge.core import Kind, Outcome, Status
from evoforge.errors import ConfigError, ModelRejectedError, NotFoundError
from evoforge.llm import Totals
from evoforge.storage import Store, open_store
from evoforge.testing.model_server import Answer, ModelServer, fault, garbage, good, refused, slow, truncated
from evoforge.testing.store_suite import a_call, make_campaign

TASK = """
import torch

M, N = 64, 512


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * 2 + y


def get_inputs():
    return [torch.randn(M, N), torch.randn(M, N)]


def get_init_inputs():
    return []


def refuse(*_, **__):
    raise RuntimeError("eager alone will do")


torch.compile = refuse
"""
KERNEL = """```cpp
// evoforge: param STEP = {step} in {{{step}, 256}}
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {{
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *x = EVO_IN(float, 0), *y = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i += STEP)
        for (int64_t j = i; j < (i + STEP < n ? i + STEP : n); j++) out[j] = {value};
    return 0;
}}
```
Hypothesis: {hypothesis}
"""


def kernel(step: int, value: str = "x[j] * 2 + y[j]", hypothesis: str = "blocks help") -> str:
    return KERNEL.format(step=step, value=value, hypothesis=hypothesis)


class Recorder:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    def kinds(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "scale.py"
    path.write_text(TASK)
    return path


def config(task: Path, server: ModelServer, *, patience_s: float = 60.0, **changes: Any) -> CampaignConfig:
    model = {
        "model": "openai/scripted", "api_base": server.api_base, "usd_per_mtok_in": 1.0, "usd_per_mtok_out": 4.0,
        "max_tokens": 2000, "timeout_s": patience_s,
    }  # fmt: skip
    fields: dict[str, Any] = {
        "task": str(task), "models": [model], "seed": 3, "workers": 3, "tuning": {"trials": 0},
        "emitters": ["invent", "improve", "aim", "cross", "repair", "parametrise"],
        "budget": {"usd": 5.0, "calls": 20}, "meta_prompts": {"evolve_every": 4},
    }  # fmt: skip
    return CampaignConfig(**{**fields, **changes})


def moods() -> Any:
    """Every kind of answer in turn, good ones often enough for something to build on."""
    steps = itertools.count(8, 8)
    turn = itertools.count()

    def answer(body: Mapping[str, Any]) -> Answer:
        system = body["messages"][0]["content"]
        number = next(turn)
        if "Weight:" in system or "Weight:" in body["messages"][1]["content"]:
            return good("Weight: operators.improve -> 2")
        kinds = {
            1: good(kernel(next(steps), "x[j] * 3 + y[j]")),
            3: good("Here you are.\n```cpp\n#include <evoforge.h>\nint evo_run(const evo_call* call) { return }\n```"),
            4: good("I would rather talk about tiling, and not give a kernel."),
            6: truncated(kernel(next(steps))[:200]),
            7: refused(),
            9: fault(429, retry_after="0"),
            10: fault(500),
            11: fault(401),  # of a gateway with a bad moment
            12: garbage(),
            13: good(""),
            15: slow(),
            16: good(kernel(next(steps)).replace("return 0;", "__builtin_trap();")),
        }
        return kinds.get(number % 18) or good(kernel(next(steps)))

    return answer


@pytest.fixture(scope="module")
def mixed(
    task: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, CampaignConfig, ModelServer, Any, Recorder]:
    url = f"sqlite:///{tmp_path_factory.mktemp('store')}/evoforge.db"
    recorder = Recorder()
    with ModelServer(moods()) as server:
        wanted = config(task, server, patience_s=5.0)
        result = Campaign.create(wanted, url).run(recorder)
    return url, wanted, server, result, recorder


def calls_of(store: Store, name: str) -> list[Any]:
    return [row.call for row in store.calls(name)]


def test_it_runs_to_its_budget_whatever_comes_back(mixed: Any) -> None:
    url, _, _, result, recorder = mixed
    assert result.stop_reason == "model budget"
    assert result.exit_code == 0
    with open_store(url) as store:
        outcomes = {call.outcome for call in calls_of(store, result.campaign)}
        statuses = {row.evaluation.status for row in store.evaluations(campaign=result.campaign)}
    assert {Outcome.OK, Outcome.REFUSED, Outcome.TRUNCATED, Outcome.FAILED, Outcome.REJECTED} <= outcomes
    assert {Status.CORRECT, Status.WRONG, Status.BUILD_ERROR} <= statuses
    assert recorder.kinds("useless")


def test_what_the_model_budget_ended_measures_nothing_until_there_is_more(
    task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/evoforge.db"
    steps = itertools.count(8, 8)
    with ModelServer(lambda body: good(kernel(next(steps)))) as server:
        wanted = config(task, server, name="spent", budget={"usd": 5.0, "calls": 3}, meta_prompts={"evolve_every": 0})
        first = Campaign.create(wanted, url).run()
        assert first.stop_reason == "model budget"

        def set_up(*_: object) -> None:
            raise AssertionError("it was set up")

        with monkeypatch.context() as patch:
            patch.setattr("evoforge.campaign._campaign.prepare", set_up)
            recorder = Recorder()
            again = Campaign.resume("spent", url).run(recorder)
        assert (again.stop_reason, again.evaluations) == ("model budget", first.evaluations)
        (notice,) = recorder.kinds("notice")
        assert "finished, nothing was measured: its models have had $" in notice.data["text"]
        assert "3 calls" in notice.data["text"] and "give --calls N (in all) to go on" in notice.data["text"]
        Campaign.resume("spent", url).extend(Budget(usd=5.0, calls=6))
        more = Campaign.resume("spent", url).run()
        assert (more.stop_reason, more.models["calls"]) == ("model budget", 6)


def test_the_ledger_is_the_servers_own_count(mixed: Any) -> None:
    url, wanted, server, result, _ = mixed
    with open_store(url) as store:
        calls = calls_of(store, result.campaign)
    assert len(calls) == result.models["calls"]
    assert sum(call.prompt_tokens for call in calls) == server.books.prompt_tokens
    assert sum(call.completion_tokens for call in calls) == server.books.completion_tokens
    assert sum(1 + call.retries for call in calls) == server.books.calls == wanted.budget.calls
    assert result.usd == pytest.approx(server.books.prompt_tokens / 1e6 + 4 * server.books.completion_tokens / 1e6)
    assert 0 < result.usd <= wanted.budget.usd


def test_every_candidate_says_where_it_comes_from(mixed: Any) -> None:
    url, wanted, _, result, _ = mixed
    with open_store(url) as store:
        candidates = store.candidates(result.campaign)
        prompts = {row.meta_prompt.ref for row in store.meta_prompts(result.campaign)}
        proposals = store.proposals(result.campaign)
        calls = {call.ticket: call for call in calls_of(store, result.campaign)}
    assert candidates
    for candidate in candidates:
        assert candidate.model == "openai/scripted"
        assert candidate.meta_prompt in prompts
        assert candidate.genome is None
        assert isinstance(candidate.notes["exemplars"], list)
    assert {"blocks help"} == {candidate.notes["hypothesis"] for candidate in candidates} - {""}
    operators = {proposal.operator for proposal in proposals}  # which of them is drawn how often depends on timings
    assert len(operators) > 1 and operators <= set(wanted.emitters)
    for proposal in proposals:
        assert calls[proposal.ticket].meta_prompt == proposal.meta_prompt
        assert calls[proposal.ticket].purpose == proposal.emitter


def test_meta_prompts_evolve_meanwhile(mixed: Any) -> None:
    url, _, _, result, recorder = mixed
    with open_store(url) as store:
        evolved = [row.meta_prompt for row in store.meta_prompts(result.campaign) if row.meta_prompt.parents]
    assert evolved
    assert {prompt.ref for prompt in evolved} == {event.data["ref"] for event in recorder.kinds("meta_prompt")}


def test_no_name_of_this_machine_leaves_it(mixed: Any, task: Path) -> None:
    import getpass
    import socket

    _, _, server, _, _ = mixed
    sent = "\n".join(message["content"] for body in server.requests for message in body["messages"])
    assert "x * 2 + y" in sent
    for private in (str(task.parent), str(Path.home()) + "/", socket.gethostname()):
        assert len(private) < 4 or private not in sent
    assert not re.search(rf"\b{re.escape(getpass.getuser())}@", sent)


def test_what_is_switched_off_does_not_leave(task: Path, tmp_path: Path) -> None:
    with ModelServer([good(kernel(8)), good(kernel(16))]) as server:
        wanted = config(
            task, server, send={"task": False, "kernels": False, "hardware": False},
            emitters=["invent"], budget={"usd": 1.0, "calls": 2},
        )  # fmt: skip
        Campaign.create(wanted, f"sqlite:///{tmp_path}/evoforge.db").run()
        sent = "\n".join(message["content"] for body in server.requests for message in body["messages"])
    assert "x * 2 + y" not in sent
    assert "x[j] * 2" not in sent
    assert "L2 cache" not in sent


def test_a_recorded_conversation_replays_without_a_server(mixed: Any, tmp_path: Path) -> None:
    url, wanted, server, result, _ = mixed
    asked = server.books.calls
    archives = []
    for turn in ("one", "two"):
        again = f"sqlite:///{tmp_path}/{turn}.db"
        found = Campaign.create(wanted, again, replay=url).run()
        assert (found.evaluations, found.coverage) == (result.evaluations, result.coverage)
        with open_store(again) as store:
            archives.append(
                [
                    (row.placement.action, row.placement.cell, row.placement.candidate)
                    for row in store.placements(found.campaign)
                ]
            )
    with open_store(url) as store:
        first = [
            (row.placement.action, row.placement.cell, row.placement.candidate)
            for row in store.placements(result.campaign)
        ]
    assert archives[0] == archives[1]
    assert archives[0] == first
    assert server.books.calls == asked


def test_a_question_that_was_not_recorded_stops_a_replay(mixed: Any, tmp_path: Path) -> None:
    url, wanted, _, _, _ = mixed
    with pytest.raises(NotFoundError):
        Campaign.create(wanted.model_copy(update={"seed": 4}), f"sqlite:///{tmp_path}/x.db", replay=url).run()


def test_a_campaigns_own_store_replays_what_it_asked_and_nothing_else(mixed: Any, tmp_path: Path) -> None:
    """Not the question that the replay has just kept there, nor that of any other campaign."""
    url, wanted, server, result, _ = mixed
    asked = server.books.calls
    copy = tmp_path / "evoforge.db"
    with sqlite3.connect(url.removeprefix("sqlite:///")) as source, sqlite3.connect(copy) as target:
        source.backup(target)
    own = f"sqlite:///{copy}"
    again = Campaign.create(wanted.model_copy(update={"name": "again"}), own, replay=own).run()
    assert (again.evaluations, again.coverage) == (result.evaluations, result.coverage)
    with pytest.raises(NotFoundError, match="no recorded reply"):
        Campaign.create(wanted.model_copy(update={"name": "other", "seed": 4}), own, replay=own).run()
    assert server.books.calls == asked


def test_a_wrong_key_stops_at_once_and_is_not_written_down(
    task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", "sk-not-the-right-one-000000000000")
    url = f"sqlite:///{tmp_path}/evoforge.db"
    with ModelServer([good(kernel(8))], key="sk-right") as server:
        wanted = config(task, server, name="locked")
        model = wanted.models[0].model_copy(update={"api_key_env": "A_KEY"})
        with pytest.raises(ModelRejectedError, match="key"):
            Campaign.create(wanted.model_copy(update={"models": (model,)}), url).run()
        assert server.books.calls <= wanted.workers
    assert b"sk-not-the-right-one" not in (tmp_path / "evoforge.db").read_bytes()
    with open_store(url) as store:
        assert not store.campaigns(), "nothing was paid or judged: once the key is mended the name is free"


def test_of_equal_replies_in_one_round_one_is_judged(task: Path, tmp_path: Path) -> None:
    recorder = Recorder()
    with ModelServer(lambda body: good(kernel(8))) as server:
        wanted = config(task, server, emitters=["invent"], budget={"usd": 5.0, "calls": 3})
        result = Campaign.create(wanted, f"sqlite:///{tmp_path}/evoforge.db").run(recorder)
    assert (result.evaluations, result.models["calls"]) == (1, 3)
    assert sum("the same text" in event.data["text"] for event in recorder.kinds("useless")) == 2


def test_a_model_that_is_rejected_later_is_given_up_and_the_others_go_on(task: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/evoforge.db"
    steps, recorder = itertools.count(8, 8), Recorder()
    first = [good(kernel(next(steps))) for _ in range(2)]
    broke = fault(429, "quota", code="insufficient_quota")
    with ModelServer([*first, *[broke] * 40]) as poor, ModelServer(lambda body: good(kernel(next(steps)))) as rich:
        wanted = config(task, poor, budget={"usd": 5.0, "calls": 14}, meta_prompts={"evolve_every": 0}, workers=2)
        models = (
            wanted.models[0],
            wanted.models[0].model_copy(update={"model": "openai/rich", "api_base": rich.api_base}),
        )
        result = Campaign.create(wanted.model_copy(update={"models": models}), url).run(recorder)
        assert result.stop_reason == "model budget" and result.models["calls"] == 14
        assert 3 <= poor.books.calls - 2 <= 4  # two were in flight
    told = [event.data["text"] for event in recorder.kinds("notice")]
    assert sum("openai/scripted" in text and "asked no more" in text for text in told) == 1


def test_without_any_model_left_a_search_of_models_ends(task: Path, tmp_path: Path) -> None:
    with ModelServer([good(kernel(8)), good(kernel(16)), *[fault(403)] * 40]) as server:
        wanted = config(task, server, budget={"usd": 5.0, "calls": 40}, meta_prompts={"evolve_every": 2}, workers=2)
        result = Campaign.create(wanted, f"sqlite:///{tmp_path}/evoforge.db").run()
        assert (result.stop_reason, result.correct) == ("no model left", 2)
        assert server.books.calls < 10


def test_a_search_whose_models_bring_nothing_new_ends(
    task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evoforge.campaign._loop._FRUITLESS", 12)
    turns = itertools.cycle((good(kernel(8)), good("I would rather talk."), refused(), good("")))
    with ModelServer(lambda body: next(turns)) as server:
        wanted = config(
            task, server, emitters=["invent"], budget={"evals": 50, "usd": 5.0}, meta_prompts={"evolve_every": 0}
        )
        result = Campaign.create(wanted, f"sqlite:///{tmp_path}/evoforge.db").run()
        assert 12 < server.books.calls <= 28  # those after the last tuning
    assert result.stop_reason == "nothing new from models"
    assert (result.evaluations, result.exit_code) == (1, 0)


def test_kernels_that_were_paid_are_judged_on_resume(task: Path, tmp_path: Path) -> None:
    """Replies of the last round come after the budget is spent."""
    url = f"sqlite:///{tmp_path}/evoforge.db"
    steps = itertools.count(8, 8)
    with ModelServer(lambda body: good(kernel(next(steps)))) as server:
        Campaign.create(config(task, server, name="paid", budget={"usd": 5.0, "evals": 4}), url).run()
        with open_store(url) as store:
            judged = {row.ticket for row in store.proposals("paid")}
            waiting = {row.call.ticket for row in store.calls("paid")} - judged - {None}
        assert waiting, "else this shows nothing"
        campaign = Campaign.resume("paid", url)
        campaign.extend(Budget(usd=5.0, evals=4 + len(waiting)))
        assert campaign.run().evaluations == 4 + len(waiting)
    with open_store(url) as store:
        rows = store.proposals("paid")
        assert not store.check()
    assert {row.ticket for row in rows} - judged == waiting
    assert all(row.model for row in rows if row.ticket in waiting)


def test_the_result_counts_what_was_in_flight_in_the_end(task: Path, tmp_path: Path) -> None:
    """In a replay, too."""
    url, come = f"sqlite:///{tmp_path}/evoforge.db", threading.Event()
    first, later = iter([good(kernel(step)) for step in (8, 16, 24)]), itertools.count(64, 8)

    def answer(body: Mapping[str, Any]) -> Answer:
        for one in first:
            return one
        come.wait(120)
        return good(kernel(next(later)))

    class Releasing(Recorder):
        def on_event(self, event: Event) -> None:
            super().on_event(event)
            if event.kind == "phase" and "in flight" in event.data["text"]:
                come.set()

    told = Releasing()
    with ModelServer(answer) as server:
        wanted = config(task, server, budget={"usd": 5.0, "evals": 3}, meta_prompts={"evolve_every": 0})
        result = Campaign.create(wanted, url).run(told)
        books = server.books
    waits = [event.data["text"] for event in told.kinds("phase") if "in flight" in event.data["text"]]
    assert len(waits) == 1 and waits[0].startswith("waiting for 3 calls in flight")
    assert result.models["calls"] == books.calls == 6
    assert result.models["completion_tokens"] == books.completion_tokens
    with open_store(url) as store:
        assert result.usd == pytest.approx(sum(call.usd for call in calls_of(store, result.campaign)))
    again = Campaign.create(wanted, f"sqlite:///{tmp_path}/again.db", replay=url).run()
    assert {**again.models, "seconds": 0} == {**result.models, "seconds": 0}
    assert again.usd == pytest.approx(result.usd)


def test_calls_that_were_in_flight_when_it_was_killed_stay_booked(task: Path, tmp_path: Path) -> None:
    """At the most that they can have cost: a cap holds over any number of kills."""
    url = f"sqlite:///{tmp_path}/evoforge.db"
    with ModelServer([good(kernel(8)), slow()]) as server:
        wanted = config(task, server, budget={"usd": 5.0, "calls": 6}, meta_prompts={"evolve_every": 0})
        name = Campaign.create(wanted, url).name
        script = "import sys; from evoforge.campaign import Campaign; Campaign.resume(*sys.argv[1:]).run()"
        process = subprocess.Popen([sys.executable, "-c", script, name, url])
        try:
            deadline = time.monotonic() + 300
            while server.books.calls < 3:
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.05)
        finally:
            process.kill()
            process.wait()
        with open_store(url) as store:
            left = calls_of(store, name)
        heard, *flying = left
        assert heard.outcome is Outcome.OK and heard.unsure_usd == 0.0
        assert [(call.outcome, call.usd) for call in flying] == [(Outcome.FAILED, 0.0)] * 2
        assert all(call.unsure_usd > 0 and call.unsure_tokens > 0 and call.system for call in flying)
        spent = Totals.of(left)  # what a resumed run begins with
        assert spent.requests == server.books.calls == 3
        assert spent.most_usd == pytest.approx(heard.usd + sum(call.unsure_usd for call in flying))


def test_models_and_generator_share_a_campaign_and_resume(task: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/evoforge.db"
    steps = itertools.count(8, 8)
    with ModelServer(lambda body: good(kernel(next(steps)))) as server:
        wanted = config(
            task, server, name="both", emitters=None, budget={"usd": 5.0, "evals": 9}, meta_prompts={"evolve_every": 1}
        )
        result = Campaign.create(wanted, url).run()
        assert result.evaluations == 9
        with open_store(url) as store:
            emitters = {(row.emitter, row.model is None) for row in store.proposals("both")}
            prompts = len(store.meta_prompts("both"))
            row = store.campaign("both")
            store.update_campaign("both", state="interrupted")
        assert {by_hand for _, by_hand in emitters} == {True, False}
        assert prompts > 6
        campaign = Campaign.resume("both", url)
        campaign.config = campaign.config.model_copy(
            update={"budget": campaign.config.budget.model_copy(update={"evals": 10})}
        )
        again = campaign.run()
    assert row.state == "finished"
    assert again.evaluations == 10
    with open_store(url) as store:
        assert not store.check()
        assert len(store.evaluations(campaign="both", kind=Kind.TRIAL)) >= 10


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"budget": {"evals": 3}}, "usd"),
        ({"models": []}, "models"),
        ({"emitters": ["improve", "dream"]}, "dream"),
        ({"emitters": ["generator"]}, "an emitter that asks openai"),
        ({"emitters": ["invent", "aim"], "send": {"kernels": False}}, "aim must show a model a kernel"),
    ],
)
def test_what_does_not_go_together_is_said_before_anything_runs(
    task: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with ModelServer([good("")]) as server, pytest.raises(ConfigError, match=message):
        Campaign.create(config(task, server, **changes), f"sqlite:///{tmp_path}/evoforge.db")


def test_a_resumed_campaign_knows_how_long_was_too_long(task: Path) -> None:
    with ModelServer(moods()) as server, open_store("memory://") as store:
        make_campaign(store, "c")
        long = a_call(model="openai/scripted", system="s" * 9000, outcome=Outcome.TOO_LONG)
        store.record_call("c", long)
        desk = desk_of("c", config(task, server), store, None, False, math.inf, notice=print, phase=print)
        assert desk is not None and 300 < desk.room(long.model) < 3000
        desk.close()
