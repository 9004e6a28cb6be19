"""Which hardware a search is for, and who may measure on it.

``cpu``, ``cpu:threads=1``, ``cpu:isa=x86-64-v3``, ``cpu:threads=2,isa=x86-64-v3``: each is a target
of its own, with its own fingerprint, ceilings and elites.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import platform
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from evoforge.core import PROTOCOL_VERSION, Target
from evoforge.errors import MissingToolError, UnsupportedError, UsageError

__all__ = ["ISAS", "compiler_version", "device_lock", "find_compiler", "known_targets", "pinned_cpus", "resolve_target"]

ISAS: dict[str, tuple[int, frozenset[str]]] = {
    "x86-64": (16, frozenset({"sse2"})),
    "x86-64-v2": (16, frozenset({"cx16", "popcnt", "sse4_1", "sse4_2", "ssse3"})),
    "x86-64-v3": (32, frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"})),
    "x86-64-v4": (64, frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"})),
}
"""ISA level → (bytes of its widest vector, the CPU flags it needs)."""

_TOLD = (
    *("avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vbmi", "avx512_vnni"),
    *("avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8"),
)
_SYSTEM = Path("/sys/devices/system/cpu")


def resolve_target(spec: str) -> Target:
    """The target that `spec` names, with its fingerprint and without measured ceilings.

    Threads default to the physical cores that this process may use, the ISA to ``native``.

    Raises:
        UsageError: not a target, or one that this CPU cannot be.
        UnsupportedError: a GPU target, or a processor that is not x86-64.
    """
    kind, _, rest = spec.strip().partition(":")
    if kind in ("cuda", "hip"):
        raise UnsupportedError(f"target {spec} is for a GPU, which comes later; use --target cpu")
    if kind != "cpu":
        raise UsageError(f"expected a target like cpu, cpu:threads=1 or cpu:isa=x86-64-v3, got {spec!r}")
    if platform.machine() not in ("x86_64", "AMD64"):
        raise UnsupportedError(f"target cpu needs an x86-64 processor, this one is {platform.machine()}")
    options = _options(spec, rest)
    threads = _threads(options["threads"], spec) if "threads" in options else len(_physical(_allowed()))
    isa = options.get("isa", "native")
    _check_isa(isa)
    return Target(spec.strip(), "cpu", threads, isa, _fingerprint(threads, isa))


def known_targets() -> list[Target]:
    """The targets worth offering on this machine: ``cpu``, one thread, and each lower ISA."""
    specs = ["cpu"]
    if len(_physical(_allowed())) > 1:
        specs.append("cpu:threads=1")
    specs += [f"cpu:isa={isa}" for isa in ("x86-64-v3", "x86-64-v4") if _missing(isa) == []]
    return [resolve_target(spec) for spec in specs]


def pinned_cpus(threads: int) -> tuple[int, ...]:
    """The CPUs that `threads` threads run on: one per physical core first, in ascending order.

    Reference, baselines and kernels all use these, so that no side gets better ones.
    """
    allowed = _allowed()
    cores = _physical(allowed)
    return tuple(sorted([*cores, *(cpu for cpu in allowed if cpu not in cores)][:threads]))


def find_compiler() -> str:
    """The C++ compiler: ``$CXX``, or g++ where that is not set.

    Raises:
        MissingToolError: there is none.
    """
    wanted = os.environ.get("CXX", "").strip()
    found = shutil.which(wanted or "g++")
    if found:
        return found
    if wanted:  # another one than the user asked for would be a silent change of every number
        raise MissingToolError(
            f"expected the program of a C++ compiler in $CXX, got {wanted!r}, which is not there; "
            "correct CXX, or unset it to use g++"
        )
    raise MissingToolError(
        "expected a C++ compiler ($CXX or g++), found none; install one, for example: apt-get install g++"
    )


@lru_cache
def compiler_version(compiler: str) -> str:
    """The first line of what ``--version`` prints."""
    done = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=30, check=False)
    return done.stdout.partition("\n")[0].strip()


_held: dict[str, tuple[int, object]] = {}
_held_lock = threading.Lock()


@contextlib.contextmanager
def device_lock(target: Target, timeout_s: float = -1.0) -> Iterator[None]:
    """Holds the device against every other process of this machine while measuring on it.

    All targets of one kind share one lock: ``cpu`` and ``cpu:threads=1`` disturb each other. Within
    a process it is re-entrant, from any thread: a process orders its own measurements.

    Args:
        timeout_s: how long to wait; negative waits for ever.

    Raises:
        UsageError: another process still held it when `timeout_s` was over.
    """
    import filelock

    path = _lock_folder() / f"{target.kind}.lock"
    with _held_lock:
        count, lock = _held.get(str(path), (0, None))
        if count == 0:
            lock = filelock.FileLock(path, mode=0o666, thread_local=False)
            try:
                lock.acquire(timeout=timeout_s)
            except filelock.Timeout:
                raise UsageError(
                    f"expected the device {target.kind} to be free within {timeout_s:g} s, another evoforge process "
                    f"is measuring on it; wait for it or stop it (lock {path})"
                ) from None
        _held[str(path)] = (count + 1, lock)
    try:
        yield
    finally:
        with _held_lock:
            count, _ = _held[str(path)]
            _held[str(path)] = (count - 1, lock)
            if count == 1 and isinstance(lock, filelock.BaseFileLock):
                lock.release()


def _lock_folder() -> Path:
    """One folder for all users; a folder of the user's own where that one is closed to them."""
    shared = Path(tempfile.gettempdir()) / "evoforge-locks"
    with contextlib.suppress(OSError):
        shared.mkdir(exist_ok=True)
        if shared.stat().st_uid == os.getuid():
            shared.chmod(0o1777)
        lock = shared / "cpu.lock"
        if os.access(shared, os.W_OK) and (not lock.exists() or os.access(lock, os.W_OK)):
            return shared
    own = Path(tempfile.gettempdir()) / f"evoforge-locks-{os.getuid()}"
    own.mkdir(mode=0o700, exist_ok=True)
    return own


def _options(spec: str, rest: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in rest.split(","))):
        key, equals, value = part.partition("=")
        if key not in ("threads", "isa") or not equals or not value or key in options:
            raise UsageError(f"expected threads=N or isa=NAME after 'cpu:', each once, got {part!r} in {spec!r}")
        options[key] = value
    return options


def _threads(text: str, spec: str) -> int:
    most = len(_allowed())
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise UsageError(f"expected threads from 1 to {most}, the CPUs this process may use, got {text!r} in {spec!r}")
    return int(text)


def _check_isa(isa: str) -> None:
    if isa == "native":
        return
    if isa not in ISAS:
        raise UsageError(f"expected an isa of native, {', '.join(ISAS)}, got {isa!r}")
    missing = _missing(isa)
    if missing:
        raise UsageError(f"expected a CPU that has {isa}, this one lacks {', '.join(missing)}; use isa=native")


def _missing(isa: str) -> list[str]:
    return sorted(_needed(isa) - _cpu()[1])


def _needed(isa: str) -> frozenset[str]:
    levels = list(ISAS)
    return frozenset[str]().union(*(ISAS[level][1] for level in levels[: levels.index(isa) + 1]))


def _fingerprint(threads: int, isa: str) -> dict[str, object]:
    model, flags = _cpu()
    caches = _caches()
    try:
        compiler = compiler_version(find_compiler())
    except MissingToolError:
        compiler = "none"
    return {
        "cpu": model,
        "flags": hashlib.sha256(" ".join(sorted(flags)).encode()).hexdigest()[:16],
        "cores": len(_physical(_allowed())),
        "threads": threads,
        "isa": isa,
        "l1d_bytes": caches.get("l1d", 32 << 10),
        "l2_bytes": caches.get("l2", 1 << 20),
        "l2_total_bytes": caches.get("l2", 1 << 20) * min(threads, len(_physical(_allowed()))),
        "l3_bytes": caches.get("l3", 0),
        "vector_bytes": _vector_bytes(isa, flags),
        "compiler": compiler,
        "torch": metadata.version("torch"),
        "protocol": PROTOCOL_VERSION,
        **({"matrix": "amx_bf16"} if isa == "native" and {"amx_tile", "amx_bf16"} <= flags else {}),
    }


def instruction_sets(isa: str) -> tuple[str, ...]:
    """What of the instruction sets that a kernel's author may ask for are there, by their names in /proc/cpuinfo."""
    has = _cpu()[1] if isa == "native" else _needed(isa)
    return tuple(name for name in _TOLD if name in has)


def _vector_bytes(isa: str, flags: frozenset[str]) -> int:
    if isa != "native":
        return ISAS[isa][0]
    return 64 if "avx512f" in flags else 32 if "avx2" in flags else 16


@lru_cache
def _cpu() -> tuple[str, frozenset[str]]:
    model, flags = "unknown", ""
    for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name" and model == "unknown":
            model = value.strip()
        elif key.strip() == "flags" and not flags:
            flags = value
    names = set(flags.split())
    if "pni" in names:
        names.add("sse3")
    return model, frozenset(names)


@lru_cache
def _caches() -> dict[str, int]:
    """Bytes of the caches of CPU 0: l1d, l2, l3."""
    found: dict[str, int] = {}
    for folder in sorted((_SYSTEM / "cpu0" / "cache").glob("index*")):
        try:
            level, kind, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        if kind != "Instruction":
            unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(size[-1:].upper(), 1)
            found["l1d" if level == "1" else f"l{level}"] = int(size.rstrip("KMGkmg")) * unit
    return found


def _allowed() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def _physical(allowed: list[int]) -> list[int]:
    """The first allowed CPU of every physical core, no more than a control group's quota."""
    first: dict[tuple[str, str], int] = {}
    for cpu in allowed:
        try:
            folder = _SYSTEM / f"cpu{cpu}" / "topology"
            core = ((folder / "physical_package_id").read_text().strip(), (folder / "core_id").read_text().strip())
        except OSError:
            core = ("cpu", str(cpu))
        first.setdefault(core, cpu)
    cores = list(first.values())
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        cores = cores[: max(1, math.ceil(int(quota) / int(period)))]
    return cores
