"""The judge's side of a kernel's own process (native/runner.c).

A runner holds one kernel and its tensors. It is told to run n calls and answers with a nonce; time
is taken here, around the pipe. Between its answer and the next command its whole process group is
stopped: nothing that a kernel leaves running, and no pool that spins, goes on behind the clock's
back. Whatever ends it, `KernelFault` says as a status, and nothing survives `close`.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import select
import signal
import struct
import subprocess
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from evoforge.core import DTYPES, Signature, Status, TensorSpec
from evoforge.errors import WorkerError
from evoforge.evaluation.busy import BusyClock
from evoforge.evaluation.native import native_program
from evoforge.evaluation.shared import SharedTensors
from evoforge.evaluation.spawn import kill_group, processor_seconds, signal_group, spawn, waiting_seconds
from evoforge.evaluation.targets import pinned_cpus

__all__ = ["LEVELS", "POISON", "KernelFault", "Runner", "RunnerInfo", "runner_program"]

LEVELS = ("none", "basic", "strict")
"""Sandbox levels in the order of native/runner.c."""
POISON = (0xFF, 0x3F)
"""Bytes over memory that a kernel has to write before it reads it; as float32: NaN, and 0.747."""

_MAGIC = 0x45564F31
_HEADER = struct.Struct("<10I3Q")
_TENSOR = struct.Struct("<2i8q8q4q")
_COMMAND = struct.Struct("<Q8I")
_REPLY = struct.Struct("<Q2i2q224s")
_INFO, _PREPARE, _RUN, _READY, _OPEN = 1, 2, 3, 4, 5
_NO_FILL = 256
_CODES = list(DTYPES)
_MORE_TURNS, _TURN_S = 4, 5.0  # for a process that has hardly been let run: how often, and for how long at most
_RETURNED, _HARNESS = 1, 7
_STATUSES = {
    2: Status.LOAD_ERROR, 3: Status.OUT_OF_BOUNDS, 4: Status.VIOLATION, 5: Status.CRASH, 6: Status.OUT_OF_MEMORY,
    _HARNESS: Status.HARNESS_ERROR,
}  # fmt: skip


def runner_program() -> Path:
    """The native runner, compiled for this machine if the cache does not have it."""
    return native_program("runner.c", "-fopenmp", "-Wl,-z,relro,-z,now,--no-as-needed", "-lgomp", "-lm", "-ldl")


class KernelFault(Exception):
    """How a kernel failed. It never leaves the evaluation package: the judge makes it an Evaluation."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(f"{status}: {reason}")
        self.status = status
        self.reason = reason


@dataclass(frozen=True)
class RunnerInfo:
    """What the kernel asks for, in bytes."""

    workspace_bytes: int
    packed_bytes: int


class Runner:
    """One fresh process with one kernel, its inputs read-only and its output buffers.

    Args:
        library: the built kernel.
        constants: parameters and buffers; None where the signature has none.
        sets: at least one input set; call i of a batch reads set (start + i) modulo their number.
        outputs: at least two buffers; calls alternate between the first two unless told otherwise.
        sandbox: the level to try for; `sandbox_level` is the one reached.
        memory_bytes: what the kernel may allocate beside the tensors.
        quotes: what the kernel printed last stands in the message of its fault.

    Raises:
        KernelFault: the library cannot be loaded, or the kernel failed in answering what it needs.
        WorkerError: the machine cannot run the runner.
    """

    def __init__(
        self,
        library: Path,
        signature: Signature,
        *,
        constants: SharedTensors | None,
        sets: Sequence[SharedTensors],
        outputs: Sequence[SharedTensors],
        threads: int,
        sandbox: str = "basic",
        memory_bytes: int = 2 << 30,
        timeout_s: float = 10.0,
        busy: BusyClock | None = None,
        quotes: bool = True,
    ) -> None:
        self._busy = busy or BusyClock()
        self._quotes = quotes
        self._n_sets, self._n_buffers = len(sets), len(outputs)
        # Opens the inputs; the runner forgets it before it loads the kernel.
        self._key: int | None = secrets.randbits(64)
        program = runner_program()
        inputs = [item.read_only_fd() for item in sets]
        fixed = constants.read_only_fd() if constants is not None else -1
        written = [os.dup(item.fd) for item in outputs]
        passed = [fd for fd in (*inputs, fixed, *written) if fd >= 0]
        command_read, self._command = os.pipe2(os.O_CLOEXEC)
        self._reply, reply_write = os.pipe2(os.O_CLOEXEC)
        # What the kernel prints is kept for messages; when the pipe is full the rest is dropped.
        self._stderr, stderr_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        theirs = [command_read, reply_write]
        try:
            self._process = spawn(
                [program, str(library), str(command_read), str(reply_write)],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr_write, cwd="/",
                pass_fds=[*passed, *theirs], env=_environment(threads),
            )  # fmt: skip
        except OSError as error:
            for fd in (self._command, self._reply, self._stderr):
                os.close(fd)
            raise WorkerError(f"expected the runner to start, got: {error}; try: evoforge doctor") from None
        finally:
            for fd in (*passed, *theirs, stderr_write):
                os.close(fd)
        self._finalizer = weakref.finalize(self, _end, self._process, (self._command, self._reply, self._stderr))
        self._poll = select.poll()
        self._poll.register(self._reply, select.POLLIN)
        try:
            fds = [*inputs, fixed, *written]
            # Thread stacks and allocator arenas count as memory, being address space.
            limits = (LEVELS.index(sandbox), threads, memory_bytes + threads * (160 << 20))
            layout = _layout(signature, fds, limits, self._key, sets, constants, outputs)
            self.sandbox_level, self.info = self._start(layout, timeout_s)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Kills the process and everything in its group; safe to call twice."""
        self._finalizer()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def busy_s(self) -> float:
        """Processor time that the system has booked on all of its threads so far."""
        return processor_seconds(self.pid)

    @property
    def waited_s(self) -> float:
        """What all of its threads together have waited for a processor so far; 0 if nobody knows."""
        return waiting_seconds(self.pid)

    def run(
        self, n: int, start: int, *, base: int = 0, span: int | None = None, buffer: int = 0, buffers: int = 2,
        fill: int | None = None, timeout_s: float = 10.0,
    ) -> float:  # fmt: skip
        """Seconds that n calls took, from outside.

        Call i reads set base + (start + i) mod span, with all sets from `base` on by default, and
        writes output buffer (buffer + i) mod `buffers`. `fill` is a byte written over the whole workspace
        before the first call.

        Raises:
            KernelFault: it returned an error, crashed, ran out of time or broke a rule.
        """
        span = self._n_sets - base if span is None else span
        if n < 0 or start < 0:
            raise ValueError(f"expected counts of zero or more, got n={n}, start={start}")
        if base < 0 or span < 1 or base + span > self._n_sets:
            raise ValueError(f"expected sets within the {self._n_sets} that there are, got base={base}, span={span}")
        if not 0 <= buffer < buffers <= self._n_buffers:
            raise ValueError(
                f"expected output buffers of the {self._n_buffers} that there are, got {buffer} of {buffers}"
            )
        filled = _NO_FILL if fill is None else fill
        return self._ask(_RUN, timeout_s, n, start % span, buffer, filled, base, span, buffers)[1]

    def run_ready(
        self, n: int, start: int, *, span: int, near: int, timeout_s: float = 10.0
    ) -> tuple[float, float]:  # fmt: skip
        """Seconds that n calls took, from outside, and the processor time booked meanwhile (inf: nobody knows).

        Both from when the runner says that its threads are awake and have read the first `near` sets through: as it is
        in the middle of a long batch. Call i reads set (start + i) mod `span` and writes output buffer i.

        Raises:
            KernelFault: as `run`.
        """
        if not 0 <= near <= self._n_sets or not 1 <= span <= self._n_sets or not 0 <= n <= self._n_buffers:
            raise ValueError(
                f"expected up to {self._n_sets} sets and {self._n_buffers} calls, got {near} of {span} and {n}"
            )
        self._ask(_READY, timeout_s, span=near, stop=False)
        before_s = self.busy_s
        seconds = self._ask(_RUN, timeout_s, n, start % span, span=span, buffers=max(n, 1))[1]
        return seconds, self.busy_s - before_s if math.isfinite(before_s) else math.inf

    def prepare(self, timeout_s: float = 10.0) -> None:
        """Lets a kernel that packs weights pack those that are there now, over poison.

        Raises:
            KernelFault: as `run`.
        """
        self._ask(_PREPARE, timeout_s, fill=secrets.choice(POISON))

    def empty(self) -> float:
        """Seconds of a round trip that calls nothing."""
        return self._ask(_RUN, 10.0)[1]

    def _start(self, layout: tuple[int, bytes], timeout_s: float) -> tuple[str, RunnerInfo]:
        nonce, body = layout
        began = time.perf_counter()
        with contextlib.suppress(BrokenPipeError), self._busy.working():
            view = memoryview(body)
            while view:
                view = view[os.write(self._command, view) :]
            level = self._answer(nonce, began + timeout_s, loading=True)[1]
        signal_group(self._process, signal.SIGSTOP)
        reply, _ = self._ask(_INFO, timeout_s)
        self.prepare(timeout_s)
        return LEVELS[level], RunnerInfo(reply[2], reply[3])

    def _ask(
        self, op: int, timeout_s: float, n: int = 0, start: int = 0, buffer: int = 0, fill: int = _NO_FILL,
        base: int = 0, span: int = 1, buffers: int = 1, stop: bool = True,
    ) -> tuple[tuple[int, int, int, int], float]:  # fmt: skip
        if op in (_RUN, _READY) and self._key is not None:
            key, self._key = self._key, None
            self._ask(_OPEN, timeout_s, key & 0xFFFFFFFF, key >> 32)
        nonce = secrets.randbits(64)
        command = _COMMAND.pack(nonce, op, n, start, buffer, fill, base, span, buffers)
        with self._busy.working():
            began = time.perf_counter()
            with contextlib.suppress(BrokenPipeError):
                os.write(self._command, command)
            signal_group(self._process, signal.SIGCONT)
            reply = self._answer(nonce, began + timeout_s)
            seconds = time.perf_counter() - began
            if stop:
                signal_group(self._process, signal.SIGSTOP)
        if op == _RUN and reply[2] != n:
            raise KernelFault(Status.VIOLATION, f"answered for {reply[2]} calls, was asked for {n}")
        return reply, seconds

    def _answer(self, nonce: int, deadline: float, *, loading: bool = False) -> tuple[int, int, int, int]:
        """(status, code, a, b) of the reply with this nonce; every other outcome is a fault."""
        if not self._answered(max(0.0, deadline - time.perf_counter())):
            kill_group(self._process)
            raise KernelFault(Status.TIMEOUT, "did not finish in time")
        data = os.read(self._reply, _REPLY.size)
        if len(data) != _REPLY.size:
            raise self._ended(loading)
        seen, status, code, a, b, text = _REPLY.unpack(data)
        reason = text.partition(b"\0")[0].decode(errors="replace")
        if status == 0 and seen == nonce:
            return status, code, a, b
        kill_group(self._process)
        if status == _RETURNED and seen == nonce:
            raise _returned(code, reason)
        if status in _STATUSES and (loading or status != _HARNESS):  # the runner's own troubles come before the kernel
            raise self._fault(_STATUSES[status], reason)
        raise KernelFault(Status.VIOLATION, "a forged or stale answer came over the result channel")

    def _answered(self, within_s: float) -> bool:
        """Whether there is an answer in time; a process that others kept from the processors is given more of it."""
        for turn_s in (within_s, *[min(within_s, _TURN_S)] * _MORE_TURNS):
            if self._poll.poll(turn_s * 1000):
                return True
            if self.busy_s > within_s / 2:
                break
        return False

    def _ended(self, loading: bool) -> KernelFault:
        """The channel closed without an answer: what the exit status says."""
        try:
            code = self._process.wait(2.0)
        except subprocess.TimeoutExpired:
            kill_group(self._process)
            return KernelFault(Status.VIOLATION, "closed the result channel")
        if code == -signal.SIGKILL:
            return self._fault(Status.OUT_OF_MEMORY, "killed by the system, most likely for want of memory")
        if code == -signal.SIGSYS:
            return self._fault(Status.VIOLATION, "killed for a system call, which a kernel may not make")
        if code < 0:
            known = -code in signal.Signals.__members__.values()  # not all of the real-time ones have names
            return self._fault(Status.CRASH, f"killed by {signal.Signals(-code).name if known else f'signal {-code}'}")
        if loading:
            return self._fault(Status.LOAD_ERROR, f"the process ended with status {code} while loading the kernel")
        return self._fault(Status.VIOLATION, f"the kernel ended its process with status {code}")

    def _fault(self, status: Status, reason: str) -> KernelFault:
        said = b""
        with contextlib.suppress(OSError):
            said = os.read(self._stderr, 4096)
        lines = said.decode(errors="replace").strip().splitlines()
        if status is Status.CRASH and any("std::bad_alloc" in line for line in lines):
            status = Status.OUT_OF_MEMORY
        last = f"; it printed: {lines[-1][:160]}" if lines and self._quotes else ""
        return KernelFault(status, reason + last)


def _returned(code: int, what: str) -> KernelFault:
    if code == 1:
        return KernelFault(Status.UNSUPPORTED, f"{what} returned 1: these sizes are outside the kernel's domain")
    return KernelFault(Status.CRASH, f"{what} returned {code}: the kernel reports an error")


def _environment(threads: int) -> dict[str, str]:
    """Scrubbed; the allocator keeps its memory, as it does for the baselines."""
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    return kept | {
        "LC_ALL": "C",
        "LD_BIND_NOW": "1",  # a symbol that is looked up late needs kilobytes of a stack that is wiped
        "OMP_NUM_THREADS": str(threads),
        "OMP_THREAD_LIMIT": str(threads),
        "OMP_DYNAMIC": "FALSE",
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    }


def _layout(
    signature: Signature, fds: Sequence[int], limits: tuple[int, int, int], key: int,
    sets: Sequence[SharedTensors], constants: SharedTensors | None, outputs: Sequence[SharedTensors],
) -> tuple[int, bytes]:  # fmt: skip
    """(nonce, the bytes that native/runner.c reads first)."""
    nonce = secrets.randbits(64)
    level, threads, memory_bytes = limits
    cpus = pinned_cpus(threads)
    counts = (len(signature.inputs), len(signature.constants), len(signature.outputs))
    parts = [
        _HEADER.pack(_MAGIC, level, threads, *counts, len(sets), len(cpus), len(outputs), 0, nonce, memory_bytes, key),
        struct.pack(f"<{len(cpus)}i{len(fds)}i", *cpus, *fds),
    ]
    groups = ((signature.inputs, sets[0]), (signature.constants, constants), (signature.outputs, outputs[0]))
    for specs, shared in groups:
        if shared is None:
            continue
        for spec, segment in zip(specs, shared.segments, strict=True):
            place = (segment.start, segment.length, segment.data, segment.nbytes)
            parts.append(_TENSOR.pack(len(spec.shape), _code(spec), *_eight(spec.shape), *_eight(spec.stride), *place))
    return nonce, b"".join(parts)


def _code(spec: TensorSpec) -> int:
    return _CODES.index(spec.dtype)


def _eight(values: Sequence[int]) -> tuple[int, ...]:
    return (*values, *([0] * (8 - len(values))))


def _end(process: subprocess.Popen[bytes], fds: Sequence[int]) -> None:
    kill_group(process)
    for fd in fds:
        os.close(fd)
