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
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evoforge.core import DTYPES, Params, Signature, Status
from evoforge.evaluation.build import Builder
from evoforge.evaluation.native import native_program
from evoforge.paths import cache_dir, include_dir, native_dir

__all__ = ["trace_facts"]

# The last ones: nothing in the text may ask not to be seen, or ask whether it is.
_FLAGS = (
    *("-fno-tree-vectorize", "-fsanitize=kernel-address", "--param", "asan-instrumentation-with-call-threshold=0"),
    *("-U__SANITIZE_ADDRESS__", "-Dno_sanitize(...)=", "-Dno_sanitize_address=", "-Dno_address_safety_analysis="),
    *("-D__no_sanitize__(...)=", "-D__no_sanitize_address__=", "-D__no_address_safety_analysis__="),
)
_MAX_TENSOR_BYTES = 1 << 30
_CODES = {name: code for code, name in enumerate(DTYPES)}


def trace_facts(
    source: str, params: Params, signature: Signature, builder: Builder, *, seconds: int = 20
) -> dict[str, Any] | None:
    """What ``trace_hooks.c`` reports for one call; None if it could not be built or run to its end.

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
    built = builder.build(source, params, signature, extra_flags=flags)
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
    facts = _run(built.library_path, description, seconds)
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


def _run(library: Path, description: str, seconds: int) -> dict[str, Any] | None:
    """Runs the traced kernel in a process of its own; None if it failed or outlived its time."""
    program = native_program("trace_hooks.c", "-rdynamic", "-fno-builtin", "-ldl")
    environment = {"OMP_NUM_THREADS": "1", "OMP_THREAD_LIMIT": "1", "LC_ALL": "C"}
    with tempfile.TemporaryDirectory(prefix="evoforge-trace-") as folder:
        process = subprocess.Popen(
            [str(program), str(library)], cwd=folder, env=environment, text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            text, _ = process.communicate(description, timeout=4 * seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    try:
        facts = json.loads(text) if process.returncode == 0 else None
    except ValueError:
        return None
    return facts if isinstance(facts, dict) else None


def _keep(path: Path, facts: Mapping[str, Any]) -> None:
    """Atomically; a cache that cannot be written is only slower."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(facts, file)
        Path(name).replace(path)
