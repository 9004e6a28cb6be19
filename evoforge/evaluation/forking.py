"""Worker processes are forked from one that has imported torch: forking takes milliseconds, importing seconds.

A fork server (``python -m evoforge.evaluation.forking …``), one per environment, runs evoforge's own code
only and takes orders over a socket. An order makes two processes in a session of their own: a keeper, which
waits and reports how the other one ended, and the worker, which confines itself before it reads anything.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from evoforge.evaluation import wire
from evoforge.evaluation.native import native_program
from evoforge.evaluation.spawn import kill_group, spawn

__all__ = ["WORKER_NAME", "Forked", "fork_worker"]

WORKER_NAME = "evoforge-worker"
"""What the kernel calls keepers and workers (``ps -o comm``)."""

_NUMBER = struct.Struct("<i")
_PR_SET_NAME = 15
_WORKER = "evoforge.evaluation.worker_main"


class Forked:
    """A worker, seen from the process that ordered it.

    Args:
        status: a descriptor, owned: the keeper writes its process id and, at last, the worker's exit code.
    """

    def __init__(self, status: int) -> None:
        self._status = status
        self._lock = threading.Lock()
        self._pid = 0
        self._code: int | None = None

    @property
    def pid(self) -> int:
        """The leader of the worker's process group; waits until there is one, 0 if there will be none."""
        with self._lock:
            if self._code is None and not self._pid:
                self._pid = self._number() or 0
            return self._pid

    def wait(self, timeout_s: float) -> int:
        """The exit code, negative for a signal.

        Raises:
            subprocess.TimeoutExpired: it has not ended within `timeout_s`.
        """
        started = self.pid
        with self._lock:
            if self._code is None:
                if started and not self._readable(timeout_s):
                    raise subprocess.TimeoutExpired(WORKER_NAME, timeout_s)
                code = self._number() if started else 1
                self._code = -signal.SIGKILL if code is None else code
                os.close(self._status)
            return self._code

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the whole group; nothing if it is gone or has not started."""
        with self._lock:
            if self._code is None and not self._pid and self._readable(0.0):
                self._pid = self._number() or 0
            if self._pid:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._pid, number)

    def kill(self) -> None:
        """Ends the group and waits. A keeper that has not started finds nobody to report to, and ends."""
        self.signal(signal.SIGKILL)
        if self._pid:
            self.wait(60.0)
            return
        with self._lock:
            if self._code is None:
                self._code = -signal.SIGKILL
                os.close(self._status)

    def _readable(self, timeout_s: float) -> bool:
        poll = select.poll()
        poll.register(self._status, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))

    def _number(self) -> int | None:
        data = os.read(self._status, _NUMBER.size)
        return int(_NUMBER.unpack(data)[0]) if len(data) == _NUMBER.size else None


class _Server:
    """A fork server of this process. It lives as long as this process does."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        library = native_program("fork.c", shared=True)
        self.orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            self.process = spawn(
                [sys.executable, "-P", "-m", __name__, str(theirs.fileno()), str(library), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=dict(environment),
            )


_servers: dict[tuple[tuple[str, str], ...], _Server] = {}
_lock = threading.Lock()


def _forget() -> None:
    """A forked evoforge has no servers: they would die with the process that started them."""
    global _lock
    _lock = threading.Lock()
    _servers.clear()


@atexit.register
def _end() -> None:
    for server in _servers.values():
        server.orders.close()
        kill_group(server.process)


os.register_at_fork(after_in_child=_forget)


def fork_worker(
    sock: socket.socket,
    printed: int,
    environment: Mapping[str, str],
    writable: Sequence[Path],
    threads: int,
    imports: Sequence[str] = (),
) -> Forked:
    """A worker that serves on `sock`, reads every file, writes below `writable` and prints to `printed`.

    Returns at once; the first of an environment starts when its server has imported torch. `imports` are
    modules that it may come to need: the server imports them, too, once a second worker names them.

    Raises:
        MissingToolError: no C compiler.
        OSError: the server cannot be started.
    """
    folders = [str(path) for path in writable]
    order = {"writable": folders, "threads": threads, "cwd": str(Path.cwd()), "imports": list(imports)}
    status, theirs = os.pipe()
    key = tuple(sorted(environment.items()))
    try:
        with _lock:
            for last in (False, True):
                if key not in _servers or _servers[key].process.poll() is not None:
                    _servers[key] = _Server(environment)
                try:
                    wire.send(_servers[key].orders, order, [sock.fileno(), printed, theirs])
                    break
                except BrokenPipeError:
                    if last:
                        raise
    except BaseException:
        os.close(status)
        raise
    finally:
        os.close(theirs)
    return Forked(status)


def _serve(orders: socket.socket, library: ctypes.PyDLL) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for keepers
    server, named = os.getpid(), {_WORKER}
    while True:
        try:
            order, fds = wire.receive(orders)
        except (EOFError, OSError):
            return
        try:
            for name in (_WORKER, *order["imports"]):
                if name in named:
                    importlib.import_module(name)
                named.add(name)
            gc.collect()
            gc.freeze()  # a collection in a worker would copy every page of what is shared
            if os.fork() == 0:
                _end_after(_keep, library, server, order, fds)
        except Exception:  # a broken installation, no room for a process: whoever ordered says so
            os.write(fds[1], traceback.format_exc().encode())
        for fd in fds:
            os.close(fd)


def _keep(library: ctypes.PyDLL, server: int, order: Mapping[str, Any], fds: Sequence[int]) -> None:
    library.evo_die_with(server)
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_NAME, WORKER_NAME.encode(), 0, 0, 0)
    sock, printed, status = fds
    keeper = os.getpid()
    os.write(status, _NUMBER.pack(keeper))
    worker = os.fork()
    if worker == 0:
        _end_after(_work, library, keeper, order, sock, printed)
    for fd in (sock, printed):
        os.close(fd)
    _, code = os.waitpid(worker, 0)
    os.write(status, _NUMBER.pack(os.waitstatus_to_exitcode(code)))


def _work(library: ctypes.PyDLL, keeper: int, order: Mapping[str, Any], sock: int, printed: int) -> None:
    library.evo_die_with(keeper)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    os.dup2(sock, 3)
    os.closerange(4, os.sysconf("SC_OPEN_MAX"))
    os.chdir(order["cwd"])
    paths = ["/", *order["writable"]]
    count = len(paths)
    library.evo_confine(
        (ctypes.c_char_p * count)(*map(os.fsencode, paths)), (ctypes.c_int * count)(0, *[1] * (count - 1)), count
    )
    importlib.import_module(_WORKER).main(3, order["threads"])


def _end_after(role: Any, *arguments: Any) -> NoReturn:
    """What was forked never goes on as the server."""
    code = 1
    try:
        role(*arguments)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    _library = ctypes.PyDLL(sys.argv[2])
    _library.evo_die_with(int(sys.argv[3]))
    _serve(socket.socket(fileno=int(sys.argv[1])), _library)
