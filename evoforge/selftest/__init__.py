"""Does the judge hold on this machine? Attacks that it must refuse, honest kernels that it must accept.

A fixture is one whole kernel file: ``attacks/*.cpp`` try to be believed without doing the work, ``honest/*.cpp``
are odd but right. ``tasks/*.py`` are what they are judged against.
"""

from __future__ import annotations

from evoforge.selftest.fixtures import Fixture, load_fixtures, parse_fixture, task_path
from evoforge.selftest.suite import Outcome, Report, run_suite

__all__ = ["Fixture", "Outcome", "Report", "load_fixtures", "parse_fixture", "run_suite", "task_path"]
