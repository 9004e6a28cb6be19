"""The child process that executes task files, forked by `evoforge.evaluation.forking`.

Answers requests from `evoforge.evaluation.worker_process` over a socket, one at a time, in order.
What the task prints goes to the process's own output, never into an answer.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import os
import resource
import select
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from evoforge.core import TensorSpec
from evoforge.errors import EvoforgeError, WorkerError
from evoforge.evaluation import wire
from evoforge.evaluation.dtypes import scale_dtype
from evoforge.evaluation.shared import SharedTensors, available_bytes
from evoforge.evaluation.targets import pinned_cpus
from evoforge.evaluation.tasks import tolerance_of
from evoforge.evaluation.worker_answers import answers_of
from evoforge.evaluation.worker_model import WorkloadModel
from evoforge.evaluation.worker_precision import allow_precision
from evoforge.evaluation.worker_tensors import fill, keep_default_device, tensors_of

__all__ = ["main"]

Answer = tuple[dict[str, Any], list[int]]


class _Server:
    """The task of this process, its loaded workloads and its prepared input sets."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._load_error: EvoforgeError | None = None
        self._task: dict[str, Any] = {}
        self._loaded: dict[str, WorkloadModel] = {}
        self._redrawn: dict[str, tuple[int, WorkloadModel]] = {}
        self._incoming: list[SharedTensors] = []
        self._sets: dict[str, list[list[Any]]] = {}
        self._callables: dict[str, Callable[..., Any]] = {}
        self._held: dict[str, list[Any]] = {}

    def serve(self) -> None:
        while True:
            try:
                request, fds = wire.receive(self._socket)
            except (EOFError, OSError):
                return
            try:
                answer, out = self._answer(request, fds)
            except EvoforgeError as error:
                answer, out = {"error": {"type": type(error).__name__, "message": str(error)}}, []
            except BaseException as error:  # process boundary: everything becomes an answer
                traceback.print_exc()
                answer, out = {"error": {"type": "WorkerError", "message": _unexpected(request["op"], error)}}, []
            with contextlib.suppress(BrokenPipeError):
                wire.send(self._socket, answer, out)
            for fd in out:
                os.close(fd)

    def stage(self, text: str) -> None:
        """Tells the client what is going on, for its message when time runs out."""
        with contextlib.suppress(OSError):
            wire.send(self._socket, {"stage": text})

    def _answer(self, request: Mapping[str, Any], fds: list[int]) -> Answer:
        fields = {key: value for key, value in request.items() if key != "op"}
        if request["op"] == "load":
            try:
                self._load(**fields)
            except EvoforgeError as error:
                self._load_error = error
                raise
            return {}, []
        if self._load_error is not None:
            raise self._load_error
        handlers: dict[str, Callable[..., Answer]] = {
            "describe": self._describe,
            "analyse": self._analyse,
            "constants": self._constants,
            "inputs": self._inputs,
            "reference": self._reference,
            "outputs": self._outputs,
            "prepare": self._prepare,
            "run": self._run,
        }
        handler = handlers[request["op"]]
        return handler(**fields, fds=fds) if fds else handler(**fields)

    def _load(self, task: dict[str, Any]) -> None:
        self._task = task
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = task["compiled"]
        torch.set_num_threads(task["threads"])
        torch.set_grad_enabled(False)
        keep_default_device()
        if task["side"] != "reference":
            allow_precision(tolerance_of(task["source"], task["path"]).precision)
        if task["side"] in ("compiled", "frozen"):
            importlib.import_module("torch._inductor.compile_fx")  # while others are still at work
        if task["side"] == "frozen":
            inductor: Any = importlib.import_module("torch._inductor.config")
            inductor.freezing = True
        if task["root"]:
            sys.path.insert(0, task["root"])
        _limit_memory()

    def _workload(self, name: str, weights: int | None = None) -> WorkloadModel:
        """The workload under its weights, or under those of the seed `weights`; the latest of these is kept."""
        if weights is not None:
            if self._redrawn.get(name, (None,))[0] != weights:
                self._redrawn[name] = (weights, self._workload(name).redrawn(weights))
            return self._redrawn[name][1]
        if name not in self._loaded:
            own = dict(dict(self._task["workloads"])[name])
            self._loaded[name] = WorkloadModel(
                source=self._task["source"],
                path=self._task["path"],
                root=self._task["root"],
                workload=name,
                overrides={**self._task["overrides"], **own},
                seed=self._task["seed"],
                stage=self.stage,
            )
        return self._loaded[name]

    def _describe(self) -> Answer:
        names = [name for name, _ in self._task["workloads"]]
        return {"signatures": {name: self._workload(name).signature.to_json() for name in names}}, []

    def _analyse(self, function: str, workload: str) -> Answer:
        loaded = self._workload(workload)
        self.stage(f"{function} of workload {workload}")
        module, _, attribute = function.partition(":")
        call, example = getattr(importlib.import_module(module), attribute), loaded.example()
        with loaded.on_cpu():
            return {"value": call(loaded.model, example)}, []

    def _constants(self, workload: str, weights: int | None) -> Answer:
        loaded = self._workload(workload, weights)
        return _given(fill(loaded.signature.constants, loaded.constants()))

    def _inputs(self, workload: str, seed: int, family: str) -> Answer:
        loaded = self._workload(workload)
        return _given(fill(loaded.signature.inputs, loaded.inputs(seed, family)))

    def _reference(self, workload: str, weights: int | None, strict: bool, fds: list[int]) -> Answer:
        loaded = self._workload(workload, weights)
        shared = SharedTensors(loaded.signature.inputs, fds[0], writable=False)
        try:
            found = answers_of(loaded, tensors_of(shared), self._task["seed"], strict=strict)
        finally:
            shared.close()
        outputs = loaded.signature.outputs
        y_specs = [_contiguous(spec, "f64" if spec.is_float else "i64") for spec in outputs]
        d_specs = [_contiguous(spec, scale_dtype(spec.dtype)) for spec in outputs if spec.is_float]
        also_specs = [TensorSpec("also", tuple(found.also.shape), (3, 1), "i64")] if len(found.also) else []
        picked = [(TensorSpec(f"picked{at}", tuple(rows.shape), (rows.shape[1], 1), "f64"), rows)
                  for at, _, rows in found.equal]  # fmt: skip
        answer, out = _given(
            fill(y_specs, found.y64), fill(d_specs, found.d), fill(also_specs, [found.also][: len(also_specs)]),
            fill([spec for spec, _ in picked], [rows for _, rows in picked]),
        )  # fmt: skip
        equal = [[at, inner] for at, inner, _ in found.equal]
        return {**answer, "ref_error": found.ref_error, "equal": equal, "moot": found.moot}, out

    def _outputs(self, workload: str, precision: str, weights: int | None, fds: list[int]) -> Answer:
        loaded = self._workload(workload, weights)
        shared = SharedTensors(loaded.signature.inputs, fds[0], writable=False)
        try:
            results = loaded.outputs(tensors_of(shared), precision)
        finally:
            shared.close()
        return _given(fill(loaded.signature.outputs, results))

    def _prepare(self, workload: str, first: bool, last: bool, fds: list[int] | None = None) -> Answer:
        loaded = self._workload(workload)
        if first:
            self._incoming = []
        self._incoming += [SharedTensors(loaded.signature.inputs, fd, writable=False) for fd in fds or []]
        if not last:
            return {}, []
        if not self._incoming:
            raise WorkerError(f"expected at least one input set for workload {workload}, got none")
        self._sets[workload] = [loaded.arguments(tensors_of(shared)) for shared in self._incoming]
        for shared in self._incoming:
            shared.touch()
            shared.close()  # the tensors keep the mapping; ten thousand descriptors would not be allowed
        self._held[workload] = [None, None]
        if workload not in self._callables:
            as_is = self._task["side"] == "eager"
            self._callables[workload] = loaded.model if as_is else torch.compile(loaded.model)
        self.stage(f"warming up workload {workload}")
        with loaded.blamed("forward()"):
            self._loop(workload, 3, 0)
        gc.collect()
        gc.freeze()
        return {}, []

    def _run(self, workload: str | None, n: int, start: int, base: int, span: int | None) -> Answer:
        if workload is not None:
            if workload not in self._callables:
                raise WorkerError(f"expected workload {workload} to be prepared before it runs; call prepare first")
            gc.disable()
            try:
                self._loop(workload, n, start, base, span)
            finally:
                gc.enable()
        return {}, []

    def _loop(self, workload: str, n: int, start: int, base: int = 0, span: int | None = None) -> None:
        model, sets, held = self._callables[workload], self._sets[workload], self._held[workload]
        sets = sets[base : None if span is None else base + span]
        count = len(sets)
        with self._workload(workload).on_cpu():
            for i in range(n):
                # The slot is emptied first, so that the allocator hands its memory to this very result.
                held[i & 1] = None
                held[i & 1] = model(*sets[(start + i) % count])


def _given(*shared: SharedTensors) -> Answer:
    """The specs of each, and descriptors that outlive the mappings here."""
    specs = [[[spec.name, spec.shape, spec.stride, spec.dtype] for spec in item.specs] for item in shared]
    fds = [os.dup(item.fd) for item in shared]
    for item in shared:
        item.close()
    return {"specs": specs}, fds


def _contiguous(spec: TensorSpec, dtype: str) -> TensorSpec:
    stride, step = [], 1
    for size in reversed(spec.shape):
        stride.append(step)
        step *= max(size, 1)
    return TensorSpec(spec.name, spec.shape, tuple(reversed(stride)), dtype)


def _unexpected(op: str, error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    text = str(error).strip()
    first = text.splitlines()[0] if text else "no message"
    return f"{op} failed with {type(error).__name__}: {first}{where}"


def _limit_memory() -> None:
    """Makes an allocation beyond what there is fail here instead of waking the kernel's killer."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + available_bytes() + (2 << 30)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY or limit < hard:
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _end_with_client(fd: int) -> None:
    poll = select.poll()
    poll.register(fd, 0)  # only hang-up and error, which need not be asked for
    while not poll.poll():
        pass
    os._exit(0)


def main(fd: int, threads: int) -> None:
    """Serves on the inherited socket until the client is gone."""
    faulthandler.enable(all_threads=False)
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, pinned_cpus(threads))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard > 0 else soft, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threading.Thread(target=_end_with_client, args=(fd,), daemon=True).start()
    _Server(socket.socket(fileno=fd)).serve()
    os._exit(0)  # the task's atexit hooks and threads have nothing more to say
