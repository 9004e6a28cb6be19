"""What one campaign learned, another begins with."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evoforge.campaign import Campaign, elites
from evoforge.config import Budget, CampaignConfig
from evoforge.storage import Store, open_store


def config(task: Path, evals: int, **changes: Any) -> CampaignConfig:
    fields: dict[str, Any] = {"task": str(task), "budget": Budget(evals=evals), "tuning": {"trials": 4}}
    return CampaignConfig(**{**fields, **changes})


@pytest.fixture(scope="module")
def url(eager_task: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with a finished campaign, small-1."""
    found = f"sqlite:///{tmp_path_factory.mktemp('store')}/evoforge.db"
    result = Campaign.create(config(eager_task, 10, seed=5), found).run()
    assert result.best is not None and result.best.low > 1, "there must be something to hand on"
    return found


def handed_on(store: Store, name: str) -> Any:
    return store.campaign(name).setup["traces"]


def test_other_sizes_begin_with_what_won(eager_task: Path, url: str) -> None:
    winners = {row["candidate"] for row in elites("small-1", url) if row["speedup"] > 1}
    result = Campaign.create(config(eager_task, 4, set={"M": 64}, seed=1), url).run()
    (notice,) = [text for text in result.notices if "similar" in text]
    assert "small-1" in notice
    with open_store(url) as store:
        known = {candidate.id: candidate for candidate in store.candidates("small-1")}
        candidates = {candidate.id: candidate for candidate in store.candidates(result.campaign)}
        traces = handed_on(store, result.campaign)
        proposals = store.proposals(result.campaign)
    assert 1 <= len(traces) <= 2, "of one campaign two at most"
    judged = [candidates[row.candidate].genome for row in proposals]
    assert all(judged.count(trace["genome"]) == 1 for trace in traces), "all of them, within four evaluations, once"
    given = [row for row in proposals if row.operator == "transfer"]
    assert len(given) >= len(traces) - 1, "but for the plain schedule, which comes first anyway"
    assert {trace["origin"] for trace in traces} == {"small-1"}
    genomes = [known[winner].genome for winner in winners]
    assert all(trace["genome"] in genomes for trace in traces)
    for row in given:
        assert row.emitter == "transfer"
        assert candidates[row.candidate].genome in genomes


def test_replicates_stay_independent_and_it_can_be_turned_off(eager_task: Path, url: str) -> None:
    """Nor does a replicate begin with what another task's campaign had from the first."""
    heir = Campaign.create(config(eager_task, 6, set={"M": 80}, seed=3), url).run()
    assert heir.best is not None and heir.best.low > 1, "else this shows nothing"
    again = Campaign.create(config(eager_task, 0, seed=2), url).run()
    other = Campaign.create(config(eager_task, 0, set={"M": 48}, transfer=False), url).run()
    with open_store(url) as store:
        assert "small-1" in {trace["origin"] for trace in handed_on(store, heir.campaign)}
        assert handed_on(store, again.campaign) == []
        assert handed_on(store, other.campaign) is None


def test_what_another_version_left_in_the_store_is_passed_over(eager_task: Path, url: str) -> None:
    """Its graphs have a field that this one does not know."""
    with open_store(url) as store:
        known = store.campaign("small-1")
        text = json.dumps(known.setup["graphs"]).replace('{"$": "Graph"', '{"$": "Graph", "colour": 1')
        assert "colour" in text, "else this shows nothing"
        store.create_campaign(
            "foreign", task=replace(known.task, source="another"), target=known.target, language="cpp", seed=0,
            config=known.config, descriptor=known.descriptor, setup={**known.setup, "graphs": json.loads(text)},
        )  # fmt: skip
    result = Campaign.create(config(eager_task, 0, set={"M": 72}), url).run()
    with open_store(url) as store:
        origins = {trace["origin"] for trace in handed_on(store, result.campaign)}
    assert origins and "foreign" not in origins


def test_another_operator_gives_nothing(url: str, tmp_path: Path) -> None:
    text = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.cumsum(torch.tanh(x), 1)

def get_inputs():
    return [torch.randn(96, 640)]

def get_init_inputs():
    return []
"""
    (tmp_path / "running.py").write_text(text)
    result = Campaign.create(config(tmp_path / "running.py", 0), url).run()
    with open_store(url) as store:
        assert handed_on(store, result.campaign) == []
