"""What a target's memory and vector units can do at best, measured once and kept.

A single bandwidth would quarantine honest kernels: reading, copying and streaming differ by up to
two times. Every traffic mix is therefore measured on its own, per size class.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from evoforge.core import Target
from evoforge.errors import MissingToolError
from evoforge.evaluation.targets import compiler_version, device_lock, find_compiler, pinned_cpus
from evoforge.paths import cache_dir, native_dir

__all__ = ["build_probe", "known_ceilings", "measure_ceilings"]

_ROUNDS = 4
_TIMEOUT_S = 60.0


def measure_ceilings(target: Target, *, refresh: bool = False) -> Target:
    """`target` with its ceilings in bytes/s and FLOP/s, from the cache or measured now (seconds).

    Keys are ``read``, ``write``, ``copy``, ``stream`` (a copy with non-temporal stores), ``2:1`` and
    ``2:2`` (reads : writes, the better of plain and non-temporal) ``/l2 /l3 /dram``, and
    ``flops/f32``, ``flops/f64``. Where nothing can be measured (no compiler), the ceilings stay
    empty. Takes the device lock.

    Args:
        refresh: measure again even if the cache has them; the better of old and new is kept, since
            on a shared machine one run may have met a busy moment.
    """
    path = _path(target)
    kept = _read(path)
    if kept and not refresh:
        return replace(target, ceilings=kept)
    try:
        probe = _build(target.isa)
        with device_lock(target):
            ceilings = _run(probe, target)
    except (MissingToolError, subprocess.SubprocessError, OSError, ValueError):
        return replace(target, ceilings=kept)
    ceilings = {key: max(value, kept.get(key, 0.0)) for key, value in ceilings.items()}
    _write(path, json.dumps(ceilings).encode())
    return replace(target, ceilings=ceilings)


def build_probe(target: Target) -> None:
    """Compiles what `measure_ceilings` will run, while something else has to be waited for anyway."""
    with contextlib.suppress(MissingToolError, subprocess.SubprocessError, OSError):
        _build(target.isa)


def known_ceilings(target: Target) -> Target:
    """`target` with its ceilings if they have been measured before, else as it is."""
    return replace(target, ceilings=_read(_path(target)))


def _path(target: Target) -> Path:
    return cache_dir() / "ceilings" / f"{target.id}-{_source_hash()[:12]}.json"


def _read(path: Path) -> dict[str, float]:
    try:
        found = json.loads(path.read_text())
        return {str(key): float(value) for key, value in found.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _write(path: Path, data: bytes) -> None:
    """Atomically: another process may read or write the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
    Path(name).replace(path)


def _source_hash() -> str:
    return hashlib.sha256((native_dir() / "probe.c").read_bytes()).hexdigest()


def _build(isa: str) -> Path:
    compiler = find_compiler()
    key = hashlib.sha256(f"{compiler_version(compiler)} {isa} {_source_hash()}".encode()).hexdigest()[:24]
    path = cache_dir() / "probes" / key
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            made = Path(folder) / "probe"
            command = [compiler, "-x", "c++", "-O3", f"-march={isa}", "-fopenmp", "-o", str(made)]
            subprocess.run(
                [*command, str(native_dir() / "probe.c")], check=True, capture_output=True, timeout=_TIMEOUT_S
            )
            made.replace(path)
    return path


def _run(probe: Path, target: Target) -> dict[str, float]:
    cores = min(target.threads, int(target.fingerprint.get("cores", target.threads)))
    l2 = target.l2_bytes * cores
    l3 = int(target.fingerprint.get("l3_bytes", 0))
    # Half a level is surely inside it; four times the last level, or 512 MiB, is as good as outside.
    in_l3 = l3 // 2 if l3 // 2 >= 2 * l2 else 0
    outside = min(max(4 * l3, 16 * l2, 128 << 20), 512 << 20)
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(target.threads),
        "GOMP_CPU_AFFINITY": " ".join(str(cpu) for cpu in pinned_cpus(target.threads)),
    }
    arguments = [str(value) for value in (target.threads, l2 // 2, in_l3, outside, _ROUNDS)]
    done = subprocess.run(
        [str(probe), *arguments], check=True, capture_output=True, text=True, timeout=_TIMEOUT_S, env=environment
    )
    return _best(done.stdout)


def _best(text: str) -> dict[str, float]:
    """The highest figure per key: plain and non-temporal forms of a mix share one."""
    ceilings: dict[str, float] = {}
    for line in text.splitlines():
        key, value = line.split()
        ceilings[key] = max(float(value), ceilings.get(key, 0.0))
    return _monotone(ceilings)


def _monotone(ceilings: Mapping[str, float]) -> dict[str, float]:
    """A nearer level is never slower: what a farther one was seen to do, it can do too."""
    raised = dict(ceilings)
    for near, far in (("l3", "dram"), ("l2", "l3"), ("l2", "dram")):
        for key, value in ceilings.items():
            mix, _, level = key.partition("/")
            if level == far and f"{mix}/{near}" in raised:
                raised[f"{mix}/{near}"] = max(raised[f"{mix}/{near}"], value)
    return raised
