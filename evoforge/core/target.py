"""One piece of hardware as a search sees it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Target"]


@dataclass(frozen=True)
class Target:
    """A target and what was found out about it.

    `spec` is what the user typed (``cpu:threads=1``). `fingerprint` holds what a stored measurement
    depends on (CPU model, cores, caches, ISA, compiler, threads): when it differs, old and new
    numbers must not be mixed. `ceilings` are measured, in bytes/s and FLOP/s, keyed by traffic mix
    and size class (``read/dram``, ``copy/l2``, ``stream/dram``, ``flops/f32``); empty until measured.
    """

    spec: str
    kind: str
    threads: int
    isa: str
    fingerprint: Mapping[str, Any]
    ceilings: Mapping[str, float] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """sha256 over spec and fingerprint."""
        body = json.dumps([self.spec, dict(self.fingerprint)], sort_keys=True, default=str)
        return hashlib.sha256(body.encode()).hexdigest()

    @property
    def l1_bytes(self) -> int:
        """Private first-level data cache of one core."""
        return int(self.fingerprint.get("l1d_bytes", 32 * 1024))

    @property
    def l2_bytes(self) -> int:
        """Private second-level cache of one core."""
        return int(self.fingerprint.get("l2_bytes", 1024 * 1024))

    @property
    def l2_total_bytes(self) -> int:
        """Second-level caches of all cores that the target uses."""
        return int(self.fingerprint.get("l2_total_bytes", self.l2_bytes * self.threads))

    @property
    def vector_bytes(self) -> int:
        """Widest vector register of the target's ISA."""
        return int(self.fingerprint.get("vector_bytes", 32))

    def matrix_parts(self, precision: str) -> int:
        """Of how many brain floats a float is made for the matrix unit: 3 hold a float32; 0 where there is no unit.

        Args:
            precision: a task's policy: ieee, split or tf32.
        """
        return (3 if precision == "ieee" else 2) if self.fingerprint.get("matrix") else 0
