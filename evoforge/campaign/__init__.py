"""Campaigns: the search from a task to an archive of elites, and what can be read of it."""

from evoforge.campaign._campaign import Campaign
from evoforge.campaign._checks import check
from evoforge.campaign._events import Event, Observer
from evoforge.campaign._queries import campaigns, elites, hot_and_cold, lineage, report, show, status
from evoforge.campaign._result import Best, Result
from evoforge.campaign._single import bench, check_task, evaluate_kernel
from evoforge.campaign._tickets import Tickets
from evoforge.campaign._told import told_before

__all__ = [
    "Best",
    "Campaign",
    "Event",
    "Observer",
    "Result",
    "Tickets",
    "bench",
    "campaigns",
    "check",
    "check_task",
    "elites",
    "evaluate_kernel",
    "hot_and_cold",
    "lineage",
    "report",
    "show",
    "status",
    "told_before",
]
