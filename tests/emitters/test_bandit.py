from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evoforge.core import MetaPrompt, Status, Strategy
from evoforge.emitters import Arm, Bandit, arms_of, generator_emitters, model_emitters
from evoforge.emitters.bandit import rank_rewards
from evoforge.prompts import TaskBrief

ARMS = [Arm(emitter, prompt) for emitter in ("sample", "mutate") for prompt in ("a@1", "b@1")]


def picks(bandit: Bandit, arms: Sequence[Arm], n: int = 400) -> Counter[Arm]:
    """Choices that stay without consequence: each ticket is forgotten again."""
    rng, found = np.random.default_rng(7), Counter[Arm]()
    for ticket in range(10**6, 10**6 + n):
        found[bandit.choose(arms, ticket, rng)] += 1
        bandit.forget(ticket)
    return found


def test_the_better_arm_wins_the_budget_in_a_simulated_campaign(outcome_of: Any) -> None:
    bandit, rng = Bandit(), np.random.default_rng(0)
    chosen = []
    for ticket in range(300):
        arm = bandit.choose(ARMS, ticket, rng)
        chosen.append(arm)
        chance = 0.05 + 0.3 * (arm.emitter == "mutate") + 0.3 * (arm.meta_prompt == "b@1")
        gain = float(rng.exponential()) if rng.random() < chance else 0.0
        bandit.tell(outcome_of(ticket, emitter=arm.emitter, meta_prompt=arm.meta_prompt, gain=gain))
    late = Counter(chosen[150:])
    assert late[Arm("mutate", "b@1")] > 90
    assert set(chosen[:40]) == set(ARMS)


def test_it_follows_when_the_better_arm_changes(outcome_of: Any) -> None:
    bandit, rng = Bandit(discount=0.95), np.random.default_rng(0)
    chosen = []
    for ticket in range(400):
        arm = bandit.choose(ARMS, ticket, rng)
        chosen.append(arm.emitter)
        good = "sample" if ticket < 200 else "mutate"
        gain = float(arm.emitter == good and rng.random() < 0.5)
        bandit.tell(outcome_of(ticket, emitter=arm.emitter, meta_prompt=arm.meta_prompt, gain=gain))
    assert Counter(chosen[100:200])["sample"] > 65
    assert Counter(chosen[300:])["mutate"] > 65


def test_rewards_are_shares_of_the_window_strictly_below() -> None:
    assert rank_rewards([0.0, 2.0, -1.0, 1.0, 0.0], window=10).tolist() == [0.5, 0.5, 0.0, 0.5, 0.05]
    assert rank_rewards([9.0, 0.0, 1.0], window=2).tolist() == [0.5, 0.0, 0.5]
    assert rank_rewards([], window=3).tolist() == []


def test_failures_rank_below_correct_kernels_that_gain_nothing(outcome_of: Any) -> None:
    bandit = Bandit()
    for ticket in range(40):
        bad = ticket % 2 == 0
        status = Status.WRONG if bad else Status.CORRECT
        bandit.tell(outcome_of(ticket, emitter="sample" if bad else "mutate", meta_prompt="a@1", status=status))
    (sample, _), (mutate, _) = bandit.expected([Arm("sample", "a@1"), Arm("mutate", "a@1")])
    assert mutate > sample + 0.05


def test_reward_is_weighed_against_cost_and_free_arms_do_not_divide_by_zero(outcome_of: Any) -> None:
    bandit = Bandit()
    for ticket in range(40):
        arm = ARMS[ticket % 4]
        cost = 10.0 if arm.emitter == "sample" else 0.0
        bandit.tell(
            outcome_of(ticket, emitter=arm.emitter, meta_prompt=arm.meta_prompt, gain=float(ticket // 4), cost_s=cost)
        )
    chosen = picks(bandit, ARMS)
    assert sum(n for arm, n in chosen.items() if arm.emitter == "mutate") > 370
    free = Bandit()
    free.tell(outcome_of(0, cost_s=0.0, gain=1.0))
    assert len(picks(free, ARMS)) > 1


def test_dollars_count_as_cost(outcome_of: Any) -> None:
    bandit = Bandit(usd_per_s=1e-4)
    arms = [Arm("improve", "a@1", "dear"), Arm("improve", "a@1", "cheap")]
    for ticket in range(40):
        arm = arms[ticket % 2]
        usd = 0.05 if arm.model == "dear" else 0.0001
        bandit.tell(
            outcome_of(
                ticket, emitter="improve", meta_prompt="a@1", model=arm.model, gain=float(ticket // 2), cost_usd=usd
            )
        )
    assert picks(bandit, arms)[arms[1]] > 370


def test_pending_tickets_narrow_the_posterior_without_moving_it() -> None:
    bandit, arm = Bandit(), Arm("mutate", "a@1")
    ((mean, spread),) = bandit.expected([arm])
    for ticket in range(20):
        bandit.choose([arm], ticket, np.random.default_rng(0))
    ((later, narrower),) = bandit.expected([arm])
    assert later == pytest.approx(mean) and narrower < 0.5 * spread
    for ticket in range(20):
        bandit.forget(ticket)
    assert bandit.expected([arm]) == [(mean, spread)]


def test_a_child_prompt_starts_at_its_parents_posterior_widened(outcome_of: Any) -> None:
    family = {"child@2": ("good@1",), "other@2": ("bad@1",)}
    bandit = Bandit(lineage=lambda ref: family.get(ref, ()))
    for ticket in range(60):
        good = ticket % 2 == 0
        name = "good@1" if good else "bad@1"
        bandit.tell(outcome_of(ticket, meta_prompt=name, gain=1.0 + ticket if good else 0.0))
    refs = ["good@1", "child@2", "bad@1", "other@2", "stranger@1"]
    good, child, bad, other, stranger = bandit.expected([Arm("mutate", ref) for ref in refs])
    assert child[0] == pytest.approx(good[0]) and other[0] == pytest.approx(bad[0])
    assert good[0] > stranger[0] > bad[0]
    assert stranger[1] >= child[1] > good[1]


def test_the_strategys_weights_are_a_prior_that_fades(outcome_of: Any) -> None:
    arms = [Arm("sample", "a@1", weight=3.0), Arm("mutate", "a@1", weight=1.0)]
    fresh = Bandit()
    assert picks(fresh, arms)[arms[0]] > 320
    for ticket in range(200):
        emitter = "sample" if ticket % 2 else "mutate"
        fresh.tell(outcome_of(ticket, emitter=emitter, meta_prompt="a@1", gain=float(emitter == "mutate")))
    assert picks(fresh, arms)[arms[1]] > 250


def test_weight_zero_excludes_an_arm_unless_nothing_else_is_left() -> None:
    never, other = Arm("sample", "a@1", weight=0.0), Arm("mutate", "a@1", weight=0.01)
    assert set(picks(Bandit(), [never, other], 50)) == {other}
    assert set(picks(Bandit(), [never], 5)) == {never}
    with pytest.raises(ValueError, match="at least one arm"):
        Bandit().choose([], 0, np.random.default_rng(0))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.permutations(list(range(12))), seed=st.integers(0, 50))
def test_the_order_of_tell_leaves_no_trace(outcome_of: Any, order: list[int], seed: int) -> None:
    rnd = random.Random(seed)
    outcomes = [
        outcome_of(t, emitter=rnd.choice(["sample", "mutate"]), gain=rnd.random(), cost_s=rnd.random())
        for t in range(12)
    ]

    def after(tickets: Sequence[int]) -> list[Arm]:
        bandit, rng = Bandit(), np.random.default_rng(seed)
        for ticket in range(15):
            bandit.choose(ARMS[:1], ticket, np.random.default_rng(0))
        for ticket in tickets:
            bandit.tell(outcomes[ticket])
        return [bandit.choose(ARMS, 100 + i, rng) for i in range(10)]

    assert after(order) == after(range(12))


def test_long_campaigns_forget_tickets_that_never_came(outcome_of: Any) -> None:
    bandit, arm = Bandit(), Arm("mutate", "plain@1")
    bandit.choose([arm], 0, np.random.default_rng(0))
    twin = Bandit()
    for ticket in range(1, 1200):
        for one in (bandit, twin):
            one.tell(outcome_of(ticket, gain=float(ticket % 3)))
    assert bandit.expected([arm]) == twin.expected([arm])


def test_arms_are_the_ready_emitters_times_models_times_prompts(view_of: Any) -> None:
    prompts = [
        MetaPrompt("a", 1, "cpp", Strategy(operators={"aim": 2.5}), {}),
        MetaPrompt("b", 1, "cpp", Strategy(), {}),
    ]
    emitters = [*generator_emitters(), *model_emitters(["invent"])]
    task = TaskBrief("", {}, "", "ieee", "cpp", "")
    arms = arms_of(emitters, prompts, view_of({}, task=task), ("m1", "m2"))
    assert len(arms) == 2 + 2 + 4
    assert {arm.weight for arm in arms if arm.emitter == "aim" and arm.meta_prompt == "a@1"} == {2.5}
    assert {arm.model for arm in arms if arm.emitter == "sample"} == {None}
    assert {arm.model for arm in arms if arm.emitter == "invent"} == {"m1", "m2"}
    assert len(arms_of(emitters, prompts, view_of({}, task=task))) == 4


def test_a_useless_reply_counts_against_its_arm_and_is_paid() -> None:
    good, bad = Arm("improve", "plain@1", "m1"), Arm("invent", "plain@1", "m1")
    bandit = Bandit()
    before = bandit.expected([good, bad])
    for ticket in range(10):
        bandit.choose([bad], ticket, np.random.default_rng(ticket))
        bandit.waste(ticket, bad, 0.5)
    after = bandit.expected([good, bad])
    assert after[1][0] <= before[1][0]
    assert after[1][0] <= after[0][0]


@pytest.mark.parametrize(("status", "cost_s"), [(None, 0.0), (Status.DUPLICATE, 0.0), (Status.BUILD_ERROR, 0.5)])
def test_failures_that_cost_next_to_nothing_do_not_win_the_budget(
    outcome_of: Any, status: Status | None, cost_s: float
) -> None:
    """Beside a generator whose kernels take 4 s each, and of which three in ten gain."""
    useless, good = Arm("improve", "a@1", "free"), Arm("mutate", "a@1")
    bandit, rng, shares = Bandit(), np.random.default_rng(1), Counter[Arm]()
    for ticket in range(600):
        arm = bandit.choose([useless, good], ticket, rng)
        shares[arm] += 1
        if arm == good:
            gain = float(rng.exponential()) if rng.random() < 0.3 else 0.0
            bandit.tell(outcome_of(ticket, emitter="mutate", meta_prompt="a@1", gain=gain, cost_s=4.0))
        elif status is None:
            bandit.waste(ticket, arm, 0.0)
        else:
            bandit.tell(
                outcome_of(ticket, emitter="improve", meta_prompt="a@1", model="free", status=status, cost_s=cost_s)
            )
    assert 0 < shares[useless] < 0.2 * 600


def test_a_failure_costs_at_least_the_seconds_of_a_right_kernel_and_its_own_dollars(outcome_of: Any) -> None:
    """Two models of equal ranks: the dear one's failures still count more than those of the free one."""
    dear, free = Arm("improve", "a@1", "dear"), Arm("improve", "a@1", "free")
    bandit = Bandit(usd_per_s=1e-4)
    for ticket in range(60):
        if ticket % 3 == 0:
            bandit.tell(outcome_of(ticket, meta_prompt="a@1", cost_s=4.0))
        else:
            bandit.waste(ticket, (dear, free)[ticket % 3 - 1], (0.01, 0.0)[ticket % 3 - 1])
    assert picks(bandit, [dear, free])[free] > 280
