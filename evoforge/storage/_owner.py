"""Who writes a campaign: a process that can be asked whether it still lives."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass

import psutil

__all__ = ["Owner"]


@dataclass(frozen=True)
class Owner:
    """A process by number and start time (numbers are reused), and a token per acquisition.

    `started` is in seconds since the epoch, as psutil reports it. It means something on one machine
    (and, in containers, in one process namespace): the one whose disk holds the SQLite file.
    """

    pid: int
    started: float
    token: str

    @classmethod
    def current(cls) -> Owner:
        """This process, with a fresh token."""
        pid = os.getpid()
        return cls(pid, psutil.Process(pid).create_time(), secrets.token_hex(8))

    @property
    def alive(self) -> bool:
        """Whether the process still runs; a zombie does not."""
        try:
            process = psutil.Process(self.pid)
            # The start time is derived from the boot time, which clock adjustments move a little.
            same = abs(process.create_time() - self.started) < 2.0
            return same and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False
        except psutil.AccessDenied:
            return True

    def to_text(self) -> str:
        return json.dumps([self.pid, self.started, self.token])

    @classmethod
    def from_text(cls, text: str) -> Owner:
        return cls(*json.loads(text))
