"""Facts from one instrumented run: where a kernel's memory accesses really go.

The kernel is built once more with the address sanitizer's call-outs (and no vectoriser, whose masked
accesses would be invisible), on a shrunken workload, and run with one thread by ``trace_hooks.c``,
which counts accesses per tensor and sends them through a simulated private cache. What that
program writes is untrusted: the kernel shares its process.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import signal
import subprocess
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from evoforge.core import DTYPES, Params, Signature, Status
from evoforge.evaluation.build import Builder
from evoforge.evaluation.native import native_program
from evoforge.paths import cache_dir, include_dir, native_dir

__all__ = ["trace_facts"]

# The last ones: nothing in the text may ask not to be seen. Whether it is, the screen lets no condition ask.
_FLAGS = (
    *("-fno-tree-vectorize", "-fsanitize=kernel-address", "--param", "asan-instrumentation-with-call-threshold=0"),
    *("-U__SANITIZE_ADDRESS__", "-Dno_sanitize(...)=", "-Dno_sanitize_address=", "-Dno_address_safety_analysis="),
    *("-D__no_sanitize__(...)=", "-D__no_sanitize_address__=", "-D__no_address_safety_analysis__="),
)
_MAX_TENSOR_BYTES = 1 << 30
_REPORT_BYTES = 1 << 20
_SHARED = {"read_bytes", "write_bytes", "stream_bytes", "read_misses", "write_misses", "lines"}
_TENSOR = {*_SHARED, "bytes", "gather_bytes"}
_SCRATCH = {*_SHARED, "written_back_lines", "staged_bytes", "staged_lines"}
_CODES = {name: code for code, name in enumerate(DTYPES)}


def trace_facts(
    source: str, params: Params, signature: Signature, builder: Builder, *, seconds: int = 20
) -> dict[str, Any] | None:
    """What ``trace_hooks.c`` reports for one call; None if it could not be built or run to its end, or
    if something else than that program wrote the report.

    Results are kept on disk by everything they depend on. `seconds` is the processor time allowed.

    Returns:
        ``tensors``: name → elements, itemsize, bytes, ``{read,write,stream,gather}_bytes``, ``{read,write}_misses`` and
        distinct ``lines`` of 64 bytes; ``scratch``: the same for all other memory, with
        ``written_back_lines``, ``staged_bytes``, ``staged_lines``; ``prefetches``,
        ``prefetched_lines``; ``cache_bytes``.

    Raises:
        MissingToolError: no compiler.
    """
    specs = (*signature.inputs, *signature.constants, *signature.outputs)
    if sum(spec.nbytes for spec in specs) > _MAX_TENSOR_BYTES:
        return None
    named = {spec.name: spec for spec in specs}
    flags = [*_FLAGS, "-include", str(include_dir() / "evoforge_trace.h")]
    built = builder.build(source, params, signature, extra_flags=flags, hooked=True)
    if built.status is not Status.CORRECT or built.library_path is None:
        return None
    cache_bytes = builder.target.l2_bytes
    description = _describe(signature, cache_bytes, seconds)
    hooks = (native_dir() / "trace_hooks.c").read_bytes()
    # The folder of a build is named by all that the build depends on.
    key = hashlib.sha256(b"\0".join([str(built.library_path).encode(), description.encode(), hooks])).hexdigest()
    stored = cache_dir() / "traces" / key[:2] / f"{key}.json"
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(stored.read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else None
    facts = _reported(_run(built.library_path, description, seconds), named)
    if facts is not None:
        for name, tensor in facts["tensors"].items():
            spec = named.get(name)
            tensor.update(elements=spec.numel if spec else 0, itemsize=spec.itemsize if spec else 0)
        facts["cache_bytes"] = cache_bytes
        _keep(stored, facts)
    return facts


def _describe(signature: Signature, cache_bytes: int, seconds: int) -> str:
    lines = [f"cache {cache_bytes}", f"seconds {seconds}"]
    groups = (("in", signature.inputs), ("cst", signature.constants), ("out", signature.outputs))
    for kind, specs in groups:
        for index, spec in enumerate(specs):
            numbers = [_CODES[spec.dtype], spec.nbytes, len(spec.shape), *spec.shape, *spec.stride]
            lines.append(f"tensor {kind}{index} {kind} {' '.join(map(str, numbers))}")
    return "\n".join(lines) + "\n"


def _run(library: Path, description: str, seconds: int) -> bytes:
    """What a process of its own reports of the traced kernel; empty if it failed, outlived its time or had no nonce."""
    nonce = secrets.token_hex(16).encode()
    program = native_program("trace_hooks.c", "-rdynamic", "-fno-builtin", "-ldl")
    environment = {"OMP_NUM_THREADS": "1", "OMP_THREAD_LIMIT": "1", "LC_ALL": "C"}
    with tempfile.TemporaryDirectory(prefix="evoforge-trace-") as folder, tempfile.TemporaryFile() as report:
        process = subprocess.Popen(
            [str(program), str(library)], cwd=folder, env=environment, start_new_session=True,
            stdin=subprocess.PIPE, stdout=report, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            process.communicate(nonce + description.encode(), timeout=4 * seconds)
        except subprocess.TimeoutExpired:
            return b""
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        report.seek(0)
        said = report.read(_REPORT_BYTES)
    return said.removeprefix(nonce) if process.returncode == 0 and said.startswith(nonce) else b""


def _reported(said: bytes, names: Collection[str]) -> dict[str, Any] | None:
    """The facts in a report; None where it is not as `trace_hooks.c` writes it."""
    try:
        facts = json.loads(said.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(facts, dict) or facts.keys() != {"tensors", "scratch", "prefetches", "prefetched_lines"}:
        return None
    tensors, scratch = facts["tensors"], facts["scratch"]
    if not isinstance(tensors, dict) or tensors.keys() - {"packed"} != set(names):
        return None
    rows = [(row, _TENSOR) for row in tensors.values()] + [(scratch, _SCRATCH)]
    if not all(isinstance(row, dict) and row.keys() == wanted for row, wanted in rows):
        return None
    numbers = [*(number for row, _ in rows for number in row.values()), facts["prefetches"], facts["prefetched_lines"]]
    return facts if all(type(number) is int and 0 <= number < 1 << 64 for number in numbers) else None


def _keep(path: Path, facts: Mapping[str, Any]) -> None:
    """Atomically; a cache that cannot be written is only slower."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(facts, file)
        Path(name).replace(path)
