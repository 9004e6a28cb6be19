from __future__ import annotations

from dataclasses import replace

from evoforge.campaign._desk import Desk
from evoforge.campaign._evolution import Evolution
from evoforge.core import Outcome
from evoforge.llm import ModelSpec, Reply, Request, ScriptedClient, Usage
from evoforge.prompts import PromptPool, Send

SPEC = ModelSpec("openai/tiny", usd_per_mtok_in=0.0, usd_per_mtok_out=0.0)


def desk_that(says: str) -> tuple[Desk, ScriptedClient]:
    def answer(request: Request) -> str:
        return says

    client = ScriptedClient(answer)
    return Desk(client, [SPEC], tokens=24000, send=Send(), at_once=2), client


def test_without_models_a_child_is_bred_every_so_many_outcomes() -> None:
    pool, evolution = PromptPool.default("cpp"), Evolution(every=5, seed=1, usd_per_s=1e-4, active=7)
    evolution.told = 4
    assert evolution.due(pool, None) == ([], [])
    evolution.told = 10
    before = {prompt.ref for prompt in pool.active()}
    children, displaced = evolution.due(pool, None)
    assert len(children) == 2 and all(child.parents and child.ref in pool for child in children)
    assert len(pool.active()) == 7 and evolution.due(pool, None) == ([], [])
    now = {prompt.ref for prompt in pool.active()}
    assert sorted(displaced) == sorted((before | {child.ref for child in children}) - now)


def test_with_models_three_of_four_are_rewritten_and_read_a_round_later() -> None:
    pool, evolution = PromptPool.default("cpp"), Evolution(every=1, seed=1, usd_per_s=1e-4, active=8)
    desk, client = desk_that("Weight: operators.aim -> 9")
    born = []
    for told in range(1, 9):
        evolution.told = told
        children, _ = evolution.due(pool, desk)
        born.append(len(children))
        if told == 1:
            assert children == [], "nothing waits for the model"
    born.append(len(evolution.due(pool, desk)[0]))
    desk.close()
    assert len(client.requests) == 6 and sum(born) <= 8
    rewritten = [prompt for prompt in pool if prompt.parents and prompt.strategy.operators["aim"] == 9]
    assert rewritten, "what the model said is in the pool"


def test_a_rewriting_too_long_for_a_model_shortens_its_prompts() -> None:
    pool, evolution = PromptPool.default("cpp"), Evolution(every=1, seed=1, usd_per_s=1e-4, active=8)
    long = Reply("", Outcome.TOO_LONG, Usage(), 0.0, 0.0, SPEC.model, "2048 at most")
    client, notices = ScriptedClient(lambda request: long), list[str]()
    brief = replace(SPEC, max_tokens=100)
    desk = Desk(client, [brief], tokens=24000, send=Send(), at_once=2, notice=notices.append)
    for told in range(1, 4):
        evolution.told = told
        assert evolution.due(pool, desk) == ([], [])
    desk.close()
    assert 0 < desk.room(SPEC.model) < 24000 and notices
    assert all("2048 at most" in text for text in notices)


def test_a_useless_rewriting_leaves_the_pool_as_it_was() -> None:
    pool, evolution = PromptPool.default("cpp"), Evolution(every=1, seed=1, usd_per_s=1e-4, active=8)
    before = [prompt.ref for prompt in pool]
    desk, client = desk_that("The briefing is sound.")
    evolution.told = 1
    assert evolution.due(pool, desk) == ([], [])
    assert evolution.due(pool, desk) == ([], []) and len(client.requests) == 1
    desk.close()
    assert [prompt.ref for prompt in pool] == before
