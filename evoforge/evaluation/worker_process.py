"""A child process that holds the user's PyTorch code, and how to talk to it.

Task files are untrusted and torch is heavy, so both live in a process of their own. The child ends
when its client does, stopped or not: the kernel kills it.
"""

from __future__ import annotations

import collections
import contextlib
import fcntl
import functools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evoforge import errors
from evoforge.core import Task
from evoforge.errors import EvoforgeError, WorkerError
from evoforge.evaluation import wire
from evoforge.evaluation.forking import Forked, fork_worker
from evoforge.paths import cache_dir

__all__ = ["WorkerProcess", "child_environment", "scratch_dir"]

_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "CC", "CXX", "LD_LIBRARY_PATH", "VIRTUAL_ENV",
         "PYTHONHOME", "EVOFORGE_CACHE", "XDG_CACHE_HOME", "USER", "LOGNAME")  # fmt: skip
_ATEN_ISA = {"x86-64": "default", "x86-64-v2": "default", "x86-64-v3": "avx2", "x86-64-v4": "avx512"}
_NOISE = ("worker_main.py", "worker_model.py", "worker_answers.py", "forking.py", "<frozen runpy>",
          "Extension modules:")  # fmt: skip
"""What faulthandler adds below the task's own frames."""

_HINTS: dict[int, str] = {
    signal.SIGKILL: "; it may have run out of memory",
    signal.SIGSEGV: "; a task that writes to its inputs, which are read-only, ends so: return new tensors instead",
}
"""What a death by a signal probably means."""

_KEPT_OUTPUT_BYTES = 64 * 1024
_SCRATCH = "evoforge-task-"
_ABANDONED_S = 600.0  # a folder is made before it is held


_COMPILER = ("torch._inductor.compile_fx",)
_IMPORTS = {"reference": ("torch.export._trace",), "eager": (), "compiled": _COMPILER, "frozen": _COMPILER}
"""What a side's work imports beyond torch, in seconds."""


def child_environment(side: str, threads: int, isa: str) -> dict[str, str]:
    """A scrubbed environment: no keys or tokens, and an allocator that keeps its memory.

    With glibc's defaults every large result is mapped and unmapped again, and page faults decide
    (an eager RMSNorm takes five times as long); kernels write to buffers that stay.
    """
    package = str(Path(__file__).resolve().parents[2])
    search = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    environment |= {
        "PYTHONPATH": os.pathsep.join([*search, package]),
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_MMAP_THRESHOLD_": str(1 << 40),
        "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
        "MALLOC_TOP_PAD_": str(64 << 20),
        "TMPDIR": str(scratch_dir()),
        # Whether it builds AVX2 and AVX-512 takes 16 s to ask of a compiler; every one with C++20 does.
        "TORCHINDUCTOR_VEC_ISA_OK": "1",
        # The kernels of one small graph: a pool of compiler processes would outlive its use.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    if side == "reference":
        # Its large double-precision temporaries are not timed against anything; huge pages make them cheap.
        environment["GLIBC_TUNABLES"] = "glibc.malloc.hugetlb=1"
        # It works while torch.compile does: threads that spin would take both ten times as long.
        environment["OMP_WAIT_POLICY"] = "PASSIVE"
    if isa in _ATEN_ISA:
        environment["ATEN_CPU_CAPABILITY"] = _ATEN_ISA[isa]
    return environment


@functools.cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    _sweep(Path(tempfile.gettempdir()))
    made = tempfile.TemporaryDirectory(prefix=_SCRATCH, ignore_cleanup_errors=True)
    _hold(Path(made.name))  # until this process ends, however it does
    return made


def _hold(folder: Path) -> int | None:
    """The descriptor that marks a folder as in use; None where somebody else has it, or it is none of ours."""
    try:
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        if os.fstat(held).st_uid == os.getuid():
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return held
    except OSError:
        pass
    os.close(held)
    return None


def _sweep(folder: Path) -> None:
    """Removes what processes left that were killed: a campaign of weeks is, now and then."""
    for left in folder.glob(f"{_SCRATCH}*"):
        with contextlib.suppress(OSError):
            if time.time() - left.lstat().st_mtime > _ABANDONED_S and (held := _hold(left)) is not None:
                shutil.rmtree(left, ignore_errors=True)
                os.close(held)


def scratch_dir() -> Path:
    """Where tasks of this process may write, gone when it ends.

    Not the folder for temporary files: a cache that lies there holds programs which run unconfined.
    """
    return Path(_scratch().name)


class WorkerProcess:
    """Requests go out at once and are answered in order; a thread-safe `call` does both.

    Args:
        role: what messages call it (``reference``, ``eager baseline`` …).
        timeout_s: how long one request may take, start of the process included.
    """

    def __init__(
        self, task: Task, role: str, *, side: str, threads: int, seed: int, isa: str, timeout_s: float
    ) -> None:
        self.task, self.role, self.timeout_s = task, role, timeout_s
        self._lock = threading.RLock()
        self._stage = "starting"
        self._dead: str | None = None
        self._frozen = False
        self._tail: collections.deque[bytes] = collections.deque()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket = ours
        # A task may read what its user may, but reaches no network and changes no file but scratch ones.
        compiled = cache_dir() / "inductor" / task.id  # of its own: what it leaves there, no other task loads
        compiled.mkdir(parents=True, exist_ok=True)
        scratch = [compiled, scratch_dir(), Path("/dev/null"), Path("/dev/shm")]
        printed, printing = os.pipe()
        try:
            with theirs:
                environment = child_environment(side, threads, isa)
                self._process = fork_worker(theirs, printing, environment, scratch, threads, _IMPORTS[side])
        finally:
            os.close(printing)
        self._drain = threading.Thread(target=_drain, args=(printed, self._tail), daemon=True)
        self._drain.start()
        self._finalizer = weakref.finalize(self, _kill, self._process, ours)
        body = {
            "name": task.name, "source": task.source, "path": task.path or task.entry or task.name, "root": task.root,
            "overrides": dict(task.overrides), "threads": threads, "seed": seed, "side": side,
            "compiled": str(compiled),
            "workloads": [[workload.name, dict(workload.overrides)] for workload in task.workloads],
        }  # fmt: skip
        self.pending: collections.deque[str] = collections.deque()
        self.post("load", f"loading task {task.name}", task=body)

    def post(self, op: str, what: str, fds: Sequence[int] = (), **fields: Any) -> None:
        """Sends a request whose answer `collect` will return; `what` says it in words."""
        with self._lock:
            self._check_alive()
            self._thaw()
            try:
                self._socket.settimeout(self.timeout_s)
                wire.send(self._socket, {"op": op, **fields}, fds)
            except TimeoutError:
                raise self.failure(f"did not take a request within {self.timeout_s:g} s ({what})") from None
            except OSError:
                raise self._died(what) from None
            self.pending.append(what)

    def collect(self, timeout_s: float) -> tuple[Mapping[str, Any], list[int]] | None:
        """The oldest pending answer, or None if it has not come within `timeout_s`.

        Raises:
            EvoforgeError: what the child refused with, as it was raised there.
            WorkerError: the child died.
        """
        with self._lock:
            self._check_alive()
            deadline = time.monotonic() + timeout_s
            while True:
                if not self._readable(max(0.0, deadline - time.monotonic())):
                    return None
                try:
                    self._socket.settimeout(self.timeout_s)
                    message, fds = wire.receive(self._socket)
                    if not _is_answer(message):
                        raise ValueError
                except (EOFError, OSError, ValueError, RecursionError):  # task code has the socket, too
                    raise self._died(self.pending[0] if self.pending else "waiting") from None
                if "stage" in message:
                    self._stage = str(message["stage"])
                    if time.monotonic() < deadline:
                        continue
                    return None
                if not self.pending:
                    raise self.failure("broke its protocol: it answered what nobody asked")
                self.pending.popleft()
                if "error" in message:
                    raise _rebuilt(message["error"])
                return message, fds

    def finish(self) -> tuple[Mapping[str, Any], list[int]]:
        """Waits for every pending answer, `timeout_s` each; returns the last one."""
        with self._lock:
            answer: tuple[Mapping[str, Any], list[int]] = ({}, [])
            while self.pending:
                what = self.pending[0]
                self._stage = what
                found = self.collect(self.timeout_s)
                if found is None:
                    stage = f", at: {self._stage}" if self._stage != what else ""
                    raise self.failure(f"did not finish {what} within {self.timeout_s:g} s{stage}")
                answer = found
            return answer

    def call(self, op: str, what: str, fds: Sequence[int] = (), **fields: Any) -> tuple[Mapping[str, Any], list[int]]:
        """One request and its answer; answers posted before are awaited first."""
        with self._lock:
            self.finish()
            self.post(op, what, fds, **fields)
            return self.finish()

    def freeze(self) -> None:
        """Stops the whole process group until the next request, if nothing is pending.

        Torch's OpenMP pool spins after every parallel region, and would slow whatever runs next.
        """
        with self._lock:
            if not self.pending and not self._frozen:
                self._process.signal(signal.SIGSTOP)
                self._frozen = True

    def _thaw(self) -> None:
        if self._frozen:
            self._process.signal(signal.SIGCONT)
            self._frozen = False

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        """Kills the child and everything it started."""
        self._finalizer()
        self._drain.join(timeout=1.0)
        self._dead = self._dead or f"the {self.role} process of task {self.task.name} was closed"

    def _readable(self, timeout_s: float) -> bool:
        import select

        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))

    def _check_alive(self) -> None:
        if self._dead:
            raise WorkerError(self._dead)

    def _died(self, what: str) -> WorkerError:
        try:
            code = self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            return self.failure(f"broke its protocol while {what}")
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        return self.failure(f"died while {what} ({how}{_HINTS.get(-code, '')})")

    def failure(self, what: str) -> WorkerError:
        """Kills the child for `what` it did, and says so with the last lines that it printed."""
        self.close()
        printed = b"".join(self._tail).decode(errors="replace").splitlines()
        lines = [line.strip() for line in printed if line.strip() and not any(part in line for part in _NOISE)]
        said = "; its last lines: " + " | ".join(lines[-10:]) if lines else ""
        self._dead = f"the {self.role} process of task {self.task.name} {what}{said}"
        return WorkerError(self._dead)


def _is_answer(message: Any) -> bool:
    """Whether it is an object, with an error of two texts if any."""
    if not isinstance(message, dict):
        return False
    error = message.get("error", {"type": "", "message": ""})
    return isinstance(error, dict) and all(isinstance(error.get(key), str) for key in ("type", "message"))


def _rebuilt(error: Mapping[str, str]) -> EvoforgeError:
    kind = getattr(errors, error["type"], WorkerError)
    known = isinstance(kind, type) and issubclass(kind, EvoforgeError)
    return kind(error["message"]) if known else WorkerError(error["message"])


def _drain(printed: int, tail: collections.deque[bytes]) -> None:
    """Keeps the last bytes of what the child prints, so that it never blocks and never grows."""
    while chunk := os.read(printed, 8192):
        tail.append(chunk)
        while sum(map(len, tail)) > _KEPT_OUTPUT_BYTES:
            tail.popleft()
    os.close(printed)


def _kill(process: Forked, sock: socket.socket) -> None:
    sock.close()
    process.kill()
