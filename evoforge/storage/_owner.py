"""Who writes a campaign: a process that can be asked whether it still lives."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

import psutil

__all__ = ["Owner"]

_PROC = Path("/proc")
_given_up: set[str] = set()


@dataclass(frozen=True)
class Owner:
    """A process by number and start (numbers are reused), and a token per acquisition.

    `started` names the boot and the clock ticks since then, which no change of the wall clock moves. It means
    something on one machine (and, in containers, in one process namespace): the one whose disk holds the SQLite file.
    """

    pid: int
    started: str | float
    token: str

    @classmethod
    def of(cls, pid: int) -> Owner:
        """A running process, with a fresh token.

        Raises:
            OSError: there is none of that number.
        """
        return cls(pid, _started(pid), secrets.token_hex(8))

    @classmethod
    def current(cls) -> Owner:
        """This process, with a fresh token."""
        return cls.of(os.getpid())

    @property
    def alive(self) -> bool:
        """Whether the process still runs; a zombie does not. One that may not be looked at is taken to run."""
        if self.token in _given_up:
            return False
        try:
            process = psutil.Process(self.pid)
            if isinstance(self.started, float):  # an older version wrote seconds since the epoch
                same = abs(process.create_time() - self.started) < 2.0
            else:
                same = _started(self.pid) == self.started
            return same and process.status() != psutil.STATUS_ZOMBIE
        except (FileNotFoundError, ProcessLookupError, psutil.NoSuchProcess):
            return False
        except (PermissionError, psutil.AccessDenied):
            return True

    def give_up(self) -> None:
        """Counts as gone in this process from now on: the store could not be told, as on a full disk."""
        _given_up.add(self.token)

    @classmethod
    def lives(cls, text: str | None) -> bool:
        """Whether the owner that is stored as `text` runs; nobody does not."""
        return text is not None and cls.from_text(text).alive

    def to_text(self) -> str:
        return json.dumps([self.pid, self.started, self.token])

    @classmethod
    def from_text(cls, text: str) -> Owner:
        return cls(*json.loads(text))


def _started(pid: int) -> str:
    """Boot and start time of a process: field 22 of its stat file, whose second one may hold spaces and brackets."""
    try:
        boot = (_PROC / "sys" / "kernel" / "random" / "boot_id").read_text().strip()
    except OSError:  # hidden in some containers
        boot = ""
    fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return f"{boot} {fields[19]}"
