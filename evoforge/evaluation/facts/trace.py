"""Facts from one instrumented run: where a kernel's memory accesses really go.

The kernel is built once more with the address sanitizer's call-outs (and no vectoriser, whose masked
accesses would be invisible), on a shrunken workload, and run with one thread by ``trace_hooks.c``,
which counts accesses per tensor and sends them through a simulated private cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from evoforge.core import DTYPES, Params, Signature, Target
from evoforge.errors import MissingToolError
from evoforge.evaluation.targets import compiler_version, find_compiler
from evoforge.paths import cache_dir, include_dir, native_dir

__all__ = ["definitions", "trace_facts"]

_HEADER = "evoforge_trace.h"
_FLAGS = (
    "-std=gnu++17", "-O3", "-fno-tree-vectorize", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros",
    "-fassociative-math", "-fPIC", "-w", "-fsanitize=kernel-address", "--param", "asan-instrumentation-with-call-threshold=0",
)  # fmt: skip
_COMPILE_TIMEOUT_S = 60.0
_MAX_TENSOR_BYTES = 1 << 30
_CODES = {name: code for code, name in enumerate(DTYPES)}


def definitions(params: Params, signature: Signature) -> list[str]:
    """The macros of a baked build: parameters, and every size and stride as a literal."""
    flags = [f"-D{name}={value}" for name, value in sorted(params.items())]
    for spec in (*signature.inputs, *signature.constants, *signature.outputs):
        for dim, (size, step) in enumerate(zip(spec.shape, spec.stride, strict=True)):
            flags += [f"-DEVO_SIZE_{spec.name}_{dim}={size}", f"-DEVO_STRIDE_{spec.name}_{dim}={step}"]
    return flags


def trace_facts(
    source: str, params: Params, signature: Signature, target: Target, *, seconds: int = 5
) -> dict[str, Any] | None:
    """What `trace_hooks.c` reports for one call; None if it could not be built or run to its end.

    Results are kept on disk by everything they depend on. `seconds` is the processor time allowed.

    Returns:
        ``tensors``: name → bytes, ``{read,write,stream,gather}_bytes``, ``{read,write}_misses`` and
        distinct ``lines`` of 64 bytes; ``scratch``: the same for all other memory, with
        ``written_back_lines``, ``staged_bytes``, ``staged_lines``; ``prefetches``,
        ``prefetched_lines``; ``cache_bytes``.

    Raises:
        MissingToolError: no compiler.
    """
    specs = (*signature.inputs, *signature.constants, *signature.outputs)
    if sum(spec.nbytes for spec in specs) > _MAX_TENSOR_BYTES:
        return None
    compiler = find_compiler()
    flags = [*_FLAGS, f"-march={target.isa}", *definitions(params, signature)]
    headers = _headers_digest()
    body = [compiler_version(compiler), target.fingerprint.get("cpu"), target.l2_bytes, flags, headers, source, signature.to_json()]
    key = hashlib.sha256(json.dumps(body, default=str).encode()).hexdigest()
    stored = cache_dir() / "traces" / key[:2] / f"{key}.json"
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(stored.read_text())
        return found if isinstance(found, dict) else None
    facts = _measure(source, [compiler, *flags], signature, target, seconds)
    _write(stored, json.dumps(facts))
    return facts


def _measure(source: str, command: list[str], signature: Signature, target: Target, seconds: int) -> dict[str, Any] | None:
    header = _precompiled(tuple(command[: len(_FLAGS) + 2]))
    driver = _driver()
    with tempfile.TemporaryDirectory(prefix="evoforge-trace-") as folder:
        kernel, library = Path(folder, "kernel.cpp"), Path(folder, "kernel.so")
        kernel.write_text(source)
        built = _run([*command, "-I", str(include_dir()), "-include", str(header), "-shared", str(kernel), "-o", str(library)])
        if built is None or built.returncode != 0:
            return None
        text = _describe(signature, target, seconds)
        env = {"OMP_NUM_THREADS": "1", "OMP_THREAD_LIMIT": "1", "PATH": "/usr/bin:/bin"}
        done = _run([str(driver), str(library)], text, timeout_s=seconds * 4 + 1, env=env, cwd=folder)
    if done is None or done.returncode != 0:
        return None
    try:
        facts = json.loads(done.stdout)
    except ValueError:
        return None
    return {**facts, "cache_bytes": target.l2_bytes} if isinstance(facts, dict) else None


def _describe(signature: Signature, target: Target, seconds: int) -> str:
    lines = [f"cache {target.l2_bytes}", f"seconds {seconds}"]
    groups = (("in", signature.inputs), ("cst", signature.constants), ("out", signature.outputs))
    for kind, specs in groups:
        for spec in specs:
            numbers = [_CODES[spec.dtype], spec.nbytes, len(spec.shape), *spec.shape, *spec.stride]
            lines.append(f"tensor {spec.name} {kind} {' '.join(map(str, numbers))}")
    return "\n".join(lines) + "\n"


def _run(
    command: Sequence[str],
    text: str = "",
    *,
    timeout_s: float = _COMPILE_TIMEOUT_S,
    env: dict[str, str] | None = None,
    cwd: str | None = None,
) -> subprocess.CompletedProcess[str] | None:
    """Runs a child in a session of its own; None if it outlived `timeout_s` (it is killed then)."""
    try:
        return subprocess.run(
            command, input=text, capture_output=True, text=True, errors="replace", timeout=timeout_s, env=env, cwd=cwd,
            check=False, start_new_session=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None


def _write(path: Path, text: str) -> None:
    """Atomically; a cache that cannot be written is only slower."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w") as file:
            file.write(text)
        Path(name).replace(path)


@lru_cache
def _headers_digest() -> str:
    files = [*sorted(include_dir().glob("*.h")), native_dir() / "trace_hooks.c"]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()


@lru_cache
def _driver() -> Path:
    """The tracing program, built once per version of its source.

    Raises:
        MissingToolError: the compiler cannot build it.
    """
    path = cache_dir() / "tools" / f"trace-{_headers_digest()[:16]}"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        work = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}")
        source = str(native_dir() / "trace_hooks.c")
        built = _run([find_compiler(), "-O2", "-w", "-rdynamic", "-fno-builtin", "-x", "c", source, "-o", str(work), "-ldl"])
        if built is None or built.returncode != 0:
            raise MissingToolError(
                f"expected the C compiler to build {source}, it did not: {built.stderr[:300] if built else 'timed out'}; "
                "check the compiler with evoforge doctor"
            )
        work.replace(path)
    return path


@lru_cache
def _precompiled(command: tuple[str, ...]) -> Path:
    """The header that goes in front, beside its precompiled form for these flags; returns the header."""
    key = hashlib.sha256(json.dumps([command, compiler_version(command[0]), _headers_digest()]).encode()).hexdigest()[:16]
    folder = cache_dir() / "headers" / f"trace-{key}"
    header = folder / _HEADER
    if not header.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f"trace-{key}-", dir=folder.parent))
        shutil.copy(include_dir() / _HEADER, work / _HEADER)
        made = _run([*command, "-I", str(include_dir()), "-x", "c++-header", str(work / _HEADER), "-o", str(work / f"{_HEADER}.gch")])
        if made is None or made.returncode != 0:
            (work / f"{_HEADER}.gch").unlink(missing_ok=True)  # slower without, not wrong
        try:
            work.rename(folder)
        except OSError:  # another process was first
            shutil.rmtree(work, ignore_errors=True)
    return header
