"""evoforge's own C programs, compiled for this machine when first used, and what names a build."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

from evoforge.core import printable
from evoforge.errors import UsageError, WorkerError
from evoforge.evaluation.targets import compiler_version, find_compiler
from evoforge.paths import cache_dir, native_dir

__all__ = ["cache_folder", "cpu_digest", "digest", "first_error", "native_program"]


def native_program(name: str, *flags: str, shared: bool = False) -> Path:
    """Compiles one of evoforge's own C sources for this machine, once per source and compiler.

    Args:
        name: file name in `native_dir()`.
        flags: further compiler and linker flags.
        shared: a library to load rather than a program to run.

    Raises:
        MissingToolError: no compiler.
        WorkerError: the compiler refused it.
    """
    compiler = find_compiler()
    source = native_dir() / name
    version = compiler_version(compiler)
    texts = [path.read_text(encoding="utf-8") for path in (source, *sorted(native_dir().glob("*.h")))]
    key = digest(version, cpu_digest(), *texts, *flags, str(shared))
    home = cache_folder("native") / f"{source.stem}-{key[:24]}{'.so' if shared else ''}"
    if home.exists():
        return home
    handle, temporary = tempfile.mkstemp(dir=home.parent)
    os.close(handle)
    kind = ["-shared", "-fPIC"] if shared else []
    # The language is named for the one file only: libraries that follow are not C.
    command = [compiler, "-x", "c", "-O3", *kind, "-o", temporary, str(source), "-x", "none", *flags]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=120, check=False)
        if done.returncode != 0:
            raise WorkerError(
                f"expected {name} to compile with {compiler} ({version}), "
                f"got: {first_error(done.stderr) or f'exit status {done.returncode}'}; set CXX to a working g++"
            )
        Path(temporary).chmod(0o755)
        Path(temporary).replace(home)
    finally:
        Path(temporary).unlink(missing_ok=True)
    return home


def cache_folder(name: str) -> Path:
    """A writable folder of the cache.

    Raises:
        UsageError: it cannot be written to.
    """
    path = cache_dir() / name
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError as error:
        raise UsageError(
            f"expected a folder to keep builds in, cannot write to {path} ({error.strerror}); "
            "set EVOFORGE_CACHE to a folder that is yours"
        ) from None


def digest(*parts: str) -> str:
    """One key for several texts."""
    found = hashlib.sha256()
    for part in parts:
        data = part.encode(errors="replace")
        found.update(len(data).to_bytes(8, "little") + data)
    return found.hexdigest()


@lru_cache
def cpu_digest() -> str:
    """What ``-march=native`` depends on."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    wanted = ("vendor_id", "cpu family", "model", "flags")
    first = {line.partition(":")[0].strip(): line for line in reversed(lines) if line.startswith(wanted)}
    return digest(*(first[name] for name in sorted(first)))


def first_error(text: str) -> str:
    """The line of a compiler's output that says what is wrong, without a kernel's own control characters."""
    lines = text.strip().splitlines()
    line = next((line for line in lines if "error:" in line), lines[0] if lines else "")
    return printable(line).strip()[:300]
