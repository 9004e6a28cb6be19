"""Reading the fixtures: a kernel file whose first comment lines say what it is for.

::

    // task: linear
    // expect: SCREENED | VIOLATION
    // twin: linear_blocked
    // tries: to forge the reply before the work is done

``expect`` lists every status that is fine (of honest kernels only CORRECT). ``twin`` names the honest
kernel that an attack on the clock must beat to have succeeded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path

from evoforge.core import Candidate, Status
from evoforge.errors import UsageError

__all__ = ["Fixture", "load_fixtures", "parse_fixture", "task_path"]

_HOME = Path(__file__).resolve().parent
_FOLDERS = {"attacks": True, "honest": False}
_LINE = re.compile(r"// (task|expect|twin|tries): (.*)$")


@dataclass(frozen=True)
class Fixture:
    """One kernel with the verdict that it must get.

    Raises:
        UsageError: it expects what its kind must not, or an attack and its twin are not of one kind.
    """

    name: str
    attack: bool
    task: str
    expect: frozenset[Status]
    tries: str
    source: str
    twin: str | None = None

    def __post_init__(self) -> None:
        if not self.tries or not self.expect:
            raise UsageError(f"expected fixture {self.name} to say what it tries and expects; complete its first lines")
        if not self.attack and (self.expect != {Status.CORRECT} or self.twin):
            raise UsageError(f"expected the honest fixture {self.name} to expect CORRECT and to have no twin")
        if self.attack and Status.CORRECT in self.expect:
            raise UsageError(
                f"expected the attack {self.name} to be refused, it expects CORRECT; if it is right but must not be "
                "fast, name its twin instead"
            )

    @property
    def candidate(self) -> Candidate:
        return Candidate("cpp", self.source, operator="selftest")


def parse_fixture(name: str, source: str, *, attack: bool) -> Fixture:
    """A fixture from its text; the header is the comment lines before the first other line.

    Raises:
        UsageError: an unknown, repeated or missing key, or no such status.
    """
    keys: dict[str, str] = {}
    for line in source.splitlines():
        if not line.startswith("//"):
            break
        found = _LINE.match(line)
        if found is None or found.group(1) in keys:
            raise UsageError(f"expected fixture {name} to begin with task, expect, twin and tries once, got {line!r}")
        keys[found.group(1)] = found.group(2).strip()
    try:
        expect = frozenset(Status(word.strip()) for word in keys["expect"].split("|"))
        return Fixture(name, attack, keys["task"], expect, keys["tries"], source, keys.get("twin"))
    except (KeyError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"expected fixture {name} to have a task, statuses and what it tries, got {error}") from None


@lru_cache
def _all() -> tuple[Fixture, ...]:
    return tuple(
        parse_fixture(path.stem, path.read_text(encoding="utf-8"), attack=attack)
        for folder, attack in _FOLDERS.items()
        for path in sorted((_HOME / folder).glob("*.cpp"))
    )


def load_fixtures(pattern: str = "*") -> tuple[Fixture, ...]:
    """The shipped fixtures whose name, or ``attacks/name``, matches a glob; attacks first, then by name.

    Raises:
        UsageError: nothing matches, or a file's header cannot be read.
    """
    chosen = tuple(
        fixture
        for fixture in _all()
        if fnmatch(fixture.name, pattern)
        or fnmatch(f"{'attacks' if fixture.attack else 'honest'}/{fixture.name}", pattern)
    )
    if not chosen:
        raise UsageError(f"expected a pattern that matches a fixture, got {pattern!r}; try 'attacks/*' or 'honest/*'")
    return chosen


def task_path(name: str) -> Path:
    """The task file that fixtures name `name`.

    Raises:
        UsageError: there is none.
    """
    path = _HOME / "tasks" / f"{name}.py"
    if not path.is_file():
        raise UsageError(f"expected a task of the self-test, got {name!r}; there are {', '.join(_tasks())}")
    return path


def _tasks() -> list[str]:
    return sorted(path.stem for path in (_HOME / "tasks").glob("*.py"))
