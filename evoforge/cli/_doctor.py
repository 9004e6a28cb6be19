"""What `evoforge doctor` looks at. Each check answers with what was found and what to do about it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["Finding", "examine"]

_MIN_FREE_BYTES = 2 << 30
_VECTOR_FLAGS = ("avx512f", "avx2", "fma", "avx512_bf16", "amx_tile")


@dataclass(frozen=True)
class Finding:
    """`level`: ok; warn: a search runs, with less; fail: it cannot. `mend` says what to do."""

    name: str
    level: Literal["ok", "warn", "fail"]
    found: str
    mend: str = ""


def examine(store: str) -> list[Finding]:
    """Every check, in the order in which a search would need it."""
    checks: tuple[Callable[[], Finding], ...] = (
        _system, _python, *(_package(name) for name in ("torch", "triton", "optuna", "sqlalchemy")),
        _compiler, _sanitizers, _cpu, _memory, _shared_memory, *(_layer(name) for name in _LAYERS), _data, _cache,
        lambda: _store(store),
    )  # fmt: skip
    return [check() for check in checks]


def _system() -> Finding:
    found = f"{platform.system()} {platform.release()} {platform.machine()}"
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return Finding("system", "fail", found, "evoforge's CPU target needs Linux on x86-64; use such a machine")
    return Finding("system", "ok", found)


def _python() -> Finding:
    found = f"{platform.python_version()} ({sys.executable})"
    return Finding("python", "ok", found)  # pip does not install evoforge on one that is too old


def _package(name: str) -> Callable[[], Finding]:
    def check() -> Finding:
        try:
            return Finding(name, "ok", importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            return Finding(name, "fail", "not installed", f"pip install {name}")

    return check


def _compiler() -> Finding:
    mend = "install a C++ compiler: apt-get install g++, or dnf install gcc-c++"
    wanted = os.environ.get("CXX", "").strip() or "g++"
    path = shutil.which(wanted)
    if path is None:
        return Finding("compiler", "fail", f"no {wanted} on the PATH", mend)
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("compiler", "fail", f"{path} does not run: {error}", mend)
    if "clang" in answer.stdout.lower():
        return Finding("compiler", "fail", f"{path} is clang", "install gcc's g++, and unset CXX or set it to that")
    return Finding("compiler", "ok", f"{answer.stdout.splitlines()[0]} ({path})")


def _sanitizers() -> Finding:
    mend = "champions are not called under the sanitizers; install the compiler's: apt-get install libasan8 libubsan1"
    for name in ("libasan.so", "libubsan.so"):
        try:
            answer = subprocess.run(
                [os.environ.get("CXX", "").strip() or "g++", f"-print-file-name={name}"],
                capture_output=True, text=True, timeout=20, check=True,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError):
            return Finding("sanitizers", "warn", "no compiler to ask", mend)
        if not Path(answer.stdout.strip()).is_absolute():  # the bare name comes back where there is no such file
            return Finding("sanitizers", "warn", f"no {name}", mend)
    return Finding("sanitizers", "ok", "address, undefined behaviour")


def _cpuinfo() -> dict[str, str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _cpu() -> Finding:
    info = _cpuinfo()
    flags = set(info.get("flags", "").split())
    vectors = [flag for flag in _VECTOR_FLAGS if flag in flags]
    found = f"{info.get('model name', 'unknown')}, {len(os.sched_getaffinity(0))} of {os.cpu_count()} cores, "
    found += " ".join(vectors) or "no AVX2"
    if not {"avx2", "fma"} <= flags:
        return Finding("cpu", "warn", found, "without AVX2 the gains are small; use a newer machine if there is one")
    if len(os.sched_getaffinity(0)) < 2:
        return Finding("cpu", "warn", found, "with one core, building and measuring wait for each other")
    return Finding("cpu", "ok", found)


def _memory() -> Finding:
    import psutil

    memory = psutil.virtual_memory()
    found = f"{memory.total / 2**30:.1f} GiB, {memory.available / 2**30:.1f} GiB free"
    if memory.available < _MIN_FREE_BYTES:
        return Finding("memory", "warn", found, "close other programs, or shrink the task with --set")
    return Finding("memory", "ok", found)


def _shared_memory() -> Finding:
    try:
        fd = os.memfd_create("evoforge-doctor", os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, 1 << 20)
            reopened = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
            os.close(reopened)
        finally:
            os.close(fd)
    except OSError as error:
        return Finding("shared memory", "fail", f"memfd: {error.strerror}", "mount /proc, and allow memfd_create")
    return Finding("shared memory", "ok", "memfd, read-only views")


_LAYERS = {
    "namespaces": (
        "judge.sandbox strict is out of reach; allow user namespaces: sysctl -w user.max_user_namespaces=15000, on "
        "Ubuntu kernel.apparmor_restrict_unprivileged_userns=0, in Docker --security-opt seccomp=unconfined"
    ),
    "landlock": (
        "judge.sandbox strict is out of reach, and compilers and task files may read your files; "
        "use Linux 5.13 or newer, booted with landlock in lsm="
    ),
    "seccomp": "kernels run in a process of their own, unfiltered; use a Linux kernel with CONFIG_SECCOMP_FILTER",
}


def _layer(name: str) -> Callable[[], Finding]:
    def check() -> Finding:
        from evoforge.errors import EvoforgeError
        from evoforge.evaluation.sandbox import reached_layers

        try:
            reached = name in reached_layers()
        except (EvoforgeError, OSError, subprocess.SubprocessError) as error:
            return Finding(name, "warn", f"cannot be tried: {error}", "mend what fails above, and look again")
        return Finding(name, "ok", "within reach") if reached else Finding(name, "warn", "out of reach", _LAYERS[name])

    return check


def _data() -> Finding:
    from evoforge.errors import UsageError
    from evoforge.paths import data_dir

    try:
        folders = [data_dir(name) for name in ("templates", "meta_prompts")]
    except UsageError as error:
        found, _, mend = str(error).rpartition("; ")
        return Finding("data", "fail", found, mend)
    return Finding("data", "ok", str(folders[0].parent))


def _cache() -> Finding:
    from evoforge.errors import UsageError
    from evoforge.paths import cache_dir, unwritable

    try:
        folder = cache_dir()
    except UsageError as error:
        found, _, mend = str(error).rpartition("; ")
        return Finding("cache", "fail", found, mend)
    if problem := unwritable(folder):
        return Finding("cache", "fail", problem, "set EVOFORGE_CACHE to a folder that can be written")
    return Finding("cache", "ok", str(folder))


def _store(url: str) -> Finding:
    from evoforge.errors import EvoforgeError
    from evoforge.storage import probe_store, shown_url

    try:
        there = probe_store(url)
    except EvoforgeError as error:
        text = str(error).splitlines()[0]  # servers show the place in lines of their own
        found, _, mend = text.rpartition("; ")
        if not found:
            found, mend = text, "check the server and what its user may do, or give another --store"
        return Finding("store", "fail", found, mend)
    except ImportError as error:
        return Finding("store", "fail", f"cannot be tried: {error}", "mend what fails above, and look again")
    return Finding("store", "ok", f"{shown_url(url)} ({'exists' if there else 'will be made'})")
