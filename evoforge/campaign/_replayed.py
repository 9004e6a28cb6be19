"""The campaign whose recorded evaluations another one is served."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from evoforge.campaign._budget import Clock
from evoforge.campaign._loop import EXHAUSTED
from evoforge.campaign._queries import charged
from evoforge.core import Kind
from evoforge.errors import NotFoundError
from evoforge.storage import CampaignRow, open_store

__all__ = ["as_recorded", "recorded_campaign"]


def recorded_campaign(url: str, row: CampaignRow) -> CampaignRow:
    """The campaign of the replayed store that measured this task on this target.

    The same seed first, then the same configuration (name and budget aside), then one that ended, then the oldest.
    """
    with open_store(url, create=False) as store:
        found = [
            other
            for other in store.campaigns()
            if other.task.id == row.task.id
            and other.target.id == row.target.id
            and other.setup.get("baseline")
            and (other.name, other.created) != (row.name, row.created)
        ]
    if found:
        asked = _searched(row)
        return min(
            found, key=lambda other: (other.seed != row.seed, _searched(other) != asked, other.state != "finished")
        )
    raise NotFoundError(
        f"expected a finished set-up of task {row.task.name} on {row.target.spec} in the replayed store, found none; "
        "replay a store whose campaign ran the same task, settings and target"
    )


def _searched(row: CampaignRow) -> dict[str, Any]:
    """What of a configuration decides how it is searched."""
    return {key: value for key, value in row.config.items() if key not in ("name", "budget", "task")}


def as_recorded(clock: Clock, url: str, row: CampaignRow) -> Clock:
    """The clock of a replay that ends where its recording does; one of another seed ends by its own budget.

    Wall time cannot be replayed: where the recorded campaign was cut off, so is this one.
    """
    twin = recorded_campaign(url, row)
    if twin.seed != row.seed:
        return clock
    with open_store(url, create=False) as store:
        trials, confirms = store.counts(twin.name, Kind.TRIAL), store.counts(twin.name, Kind.CONFIRM)
    ends_at = math.inf if twin.stop_reason in EXHAUSTED else charged(trials)
    return replace(clock, ends_at=ends_at, confirms=sum(confirms.values()))
