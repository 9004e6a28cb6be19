"""What the compiler's sanitizers say about one call: errors inside a kernel's memory that guard pages cannot see.

The kernel is built once more with AddressSanitizer and the part of UndefinedBehaviorSanitizer that
only a fault sets off, and called once by a small program of its own (``native/sanitize.c``), confined
like a compiler and by a filter of its own. Masked, streaming and gathering intrinsics, which the
sanitizer does not see, are checked by the header that also traces them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from evoforge.core import DTYPES, Params, Signature, Status
from evoforge.errors import EvoforgeError
from evoforge.evaluation.build import Builder
from evoforge.evaluation.native import native_program
from evoforge.evaluation.sandbox import confined
from evoforge.evaluation.shared import SharedTensors
from evoforge.evaluation.spawn import kill_group, spawn
from evoforge.paths import cache_dir, include_dir, native_dir

__all__ = ["LIMIT_S", "Sanitized", "sanitize"]

LIMIT_S = 10.0
"""Seconds that the instrumented call may take."""

# Not alignment (vector types are loaded through casts), shifts, signed overflow and casts of floats: benign in
# practice, and wrong results are found by verification. The vectoriser's masked accesses would be invisible.
_FLAGS = (
    "-O1", "-g1", "-fno-tree-vectorize", "-fno-sanitize-recover=all", "-U__SANITIZE_ADDRESS__",
    "-fsanitize=address,bounds,return,unreachable,vla-bound,integer-divide-by-zero",
)  # fmt: skip
# Leaks and mismatched ways of freeing are no wrong answers. A limit on address space is not possible:
# the shadow memory alone is terabytes of it.
_OPTIONS = (
    "detect_leaks=0:alloc_dealloc_mismatch=0:new_delete_type_mismatch=0:allocator_may_return_null=1:"
    "detect_odr_violation=0:hard_rss_limit_mb=8192:exitcode=77"
)
_MAX_TENSOR_BYTES = 1 << 30
_SAID_BYTES = 1 << 16
_CODES = {name: code for code, name in enumerate(DTYPES)}
_CRASHES = ("SEGV", "BUS", "FPE", "ILL", "ABRT", "division by zero", "execution reached")
# Instrumented frames and allocations are larger: these say nothing about the kernel as it is.
_OWN = ("stack-overflow", "out-of-memory", "allocation-size-too-big", "rss-limit-exceeded")
_BOUNDS = ("overflow", "underflow", "use-after", "out of bounds", "unknown-crash")


@dataclass(frozen=True)
class Sanitized:
    """What came of one call.

    `status` is OUT_OF_BOUNDS, CRASH or VIOLATION, with the sanitizer's own summary as `reason`; None if
    nothing was found. A reason without a status says why nothing could be told.
    """

    status: Status | None
    reason: str = ""


def sanitize(
    source: str, params: Params, signature: Signature, given: Sequence[SharedTensors], builder: Builder, *, threads: int
) -> Sanitized:
    """One call on these inputs, from the cache where a build of this text, values and sizes has had it.

    Whatever else goes wrong is no verdict on the kernel: only what a sanitizer reports is.

    Args:
        given: the inputs and, where the task has any, the constants.
    """
    specs = (*signature.inputs, *signature.constants, *signature.outputs)
    if sum(spec.nbytes for spec in specs) > _MAX_TENSOR_BYTES:
        return Sanitized(None, "its tensors take more than 1 GiB")
    flags = [*_FLAGS, "-include", str(include_dir() / "evoforge_trace.h")]
    try:
        built = builder.build(source, params, signature, extra_flags=flags)
        if built.status is not Status.CORRECT or built.library_path is None:
            return Sanitized(None, f"the instrumented build ended {built.status}: {built.reason}")
        stored = _place(built.library_path, threads)
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            row = json.loads(stored.read_text(encoding="utf-8"))
            return Sanitized(Status(row["status"]) if row["status"] else None, row["reason"])
        program = native_program("sanitize.c", "-fsanitize=address,undefined", "-rdynamic", "-ldl")
        found = _call(program, built.library_path, signature, given, builder.sandbox != "none", threads)
    except (EvoforgeError, OSError, subprocess.SubprocessError) as error:
        return Sanitized(None, f"the sanitizers do not work here: {error}")
    _keep(stored, found)
    return found


def _call(
    program: Path, library: Path, signature: Signature, given: Sequence[SharedTensors], walls: bool, threads: int
) -> Sanitized:
    limits = ["-t", str(int(LIMIT_S) * (threads + 1)), "-f", str(_SAID_BYTES)]
    reads: list[Path | str] = [
        "/usr",
        "/bin",
        "/lib",
        "/lib64",
        "/etc/ld.so.cache",
        "/proc/self",
        program,
        library.parent,
    ]
    command = confined(reads, (), *limits) if walls else [native_program("launch.c"), *limits, "--"]
    environment = {
        "OMP_NUM_THREADS": str(threads), "OMP_STACKSIZE": "64M", "LC_ALL": "C",
        "ASAN_OPTIONS": _OPTIONS, "UBSAN_OPTIONS": "print_stacktrace=0:exitcode=77",
    }  # fmt: skip
    with (
        os.fdopen(os.memfd_create("tensors", os.MFD_CLOEXEC), "w+b") as tensors,
        tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as answer,
    ):  # fmt: skip
        tensors.write(_description(signature, threads).encode())
        for shared in given:
            for index, segment in enumerate(shared.segments):
                at = segment.data - segment.start
                tensors.write(shared.bytes_of(index)[at : at + segment.nbytes].tobytes())
        tensors.seek(0)
        process = spawn(
            [*command, program, library], env=environment, cwd="/", stdin=tensors, stdout=answer, stderr=said
        )
        try:
            process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            return Sanitized(None, f"the instrumented call took more than {LIMIT_S:g} s")
        finally:
            kill_group(process)
        said.seek(0)
        answer.seek(0)
        text = said.read(_SAID_BYTES).decode(errors="replace")
        done = answer.read(64) == b"done 0\n"
    if finding := _finding(text):
        return finding
    if done and process.returncode == 0:  # a kernel can print as much, and go on
        return Sanitized(None)
    return Sanitized(None, f"the instrumented call did not come back (exit status {process.returncode})")


def _finding(text: str) -> Sanitized | None:
    """What a sanitizer wrote, and the first line of the kernel's that it names; None if it wrote nothing."""
    summary = re.search(r"^SUMMARY: \w+Sanitizer: ([\w-]+)", text, re.MULTILINE)
    match = summary or re.search(r"runtime error: (.*)$", text, re.MULTILINE)
    if match is None or match[1] in _OWN:
        return None
    kind, place = match[1][:100], re.search(r"kernel\.cpp:(\d+)", text)
    crashed = any(word in kind for word in _CRASHES)
    beyond = any(word in kind for word in _BOUNDS)
    status = Status.CRASH if crashed else Status.OUT_OF_BOUNDS if beyond else Status.VIOLATION
    return Sanitized(status, f"sanitizer: {kind}" + (f" at line {place[1]}" if place else ""))


def _description(signature: Signature, threads: int) -> str:
    groups = (signature.inputs, signature.constants, signature.outputs)
    lines = [" ".join(map(str, (threads, *map(len, groups))))]
    for spec in (spec for group in groups for spec in group):
        numbers = [_CODES[spec.dtype], spec.nbytes, len(spec.shape), *spec.shape, *spec.stride]
        lines.append(" ".join(map(str, numbers)))
    return "\n".join(lines) + "\n"


def _place(library: Path, threads: int) -> Path:
    """Where the verdict is kept: the folder of a build is named by all that the build depends on."""
    caller = (native_dir() / "sanitize.c").read_bytes()
    key = hashlib.sha256(b"\0".join([str(library).encode(), str(threads).encode(), _OPTIONS.encode(), caller]))
    return cache_dir() / "sanitized" / key.hexdigest()[:2] / f"{key.hexdigest()}.json"


def _keep(path: Path, found: Sanitized) -> None:
    """Atomically; a cache that cannot be written is only slower."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(asdict(found), file)
        Path(name).replace(path)
