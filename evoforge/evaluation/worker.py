"""The judge's side of the reference and baseline processes."""

from __future__ import annotations

import fcntl
import itertools
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar

from evoforge.core import Signature, Task, TensorSpec
from evoforge.errors import EvoforgeError, TaskError, UnsupportedError, UsageError, WorkerError
from evoforge.evaluation.dtypes import scale_dtype
from evoforge.evaluation.shared import SharedTensors
from evoforge.evaluation.wire import MAX_FDS
from evoforge.evaluation.worker_process import WorkerProcess

__all__ = [
    "DOMAINS", "EXTREMES", "FAMILIES", "SURE_EXTREMES", "BaselineWorker", "Precision", "Reference", "ReferenceWorker",
]  # fmt: skip

Precision = Literal["fp32", "bf16"]
Given = ParamSpec("Given")
Found = TypeVar("Found")

FAMILIES = ("given", "normal", "uniform", "wide", "rows", "halves")
"""``given`` is get_inputs() under the seed; the others replace its floating values only: standard
normal, uniform in [−1, 1), signed with magnitudes 2^[−10, 10], constant along the last dimension
(multiples of ⅛ from −4 to 4 but 0), multiples of ½ from −2 to 2."""

EXTREMES = ("offset", "ends", "sunk", "outliers", "large", "tiny", "small", "raised", "unit", "zeros", "infinite")
"""Families of their own stage: standard normal about a number per row of magnitude 2^[0, 8], so that whole rows have
one sign; get_inputs() with 8 times its largest size, of either sign, wherever an index is the last of its dimension,
64 times it where two are, 512 at most; normal about one number for all, −2^[6, 8], or 2^[12, 13] (`raised`);
get_inputs() with one of 128 elements of magnitude 2^[−2, 6] instead; standard normal times the fourth root
of the type's largest number, the square root of float16's; around its smallest normal number, denormals included;
normal times 2^[−10, −6]; signed with magnitudes 2^[−1/8, 1/8], of which a long product is a number (`unit`); normal,
half of it +0 or −0, and a third of the rows nowhere above 0, a third nowhere below; normal, one in a thousand ±Inf."""

SURE_EXTREMES = ("unit", "raised", "large")
"""Those that every would-be elite meets, however large the task: admission relies on them. They also show the commonest
errors: a variance from the mean of squares, exponentials without their maximum."""

MASKS = "masks"
"""Beside `EXTREMES`: get_inputs() with one in eight elements of every bool turned. Other integers stay as given: what
they index has an end."""

DOMAINS = ("", " (positive)", " (last)", " (first)", " (inside)")
"""Behind a family's name: as they are drawn; their absolute values; those in the last or the first floating input only;
and each input's mapped into the range that its values from get_inputs() have, by a curve that is steep about 0, zeros
to either end of it."""


@dataclass(frozen=True)
class Reference:
    """What the outputs should be for one input set.

    `y64` has one contiguous tensor per output, f64 for floating outputs and i64 for integers and
    bools. `d` has one contiguous tensor per *floating* output (`scale_dtype`), under the output's name: the
    dᵢ of docs/tolerance.md, sᵢ + u·|yᵢ| or more (u = 2⁻²⁴; 2⁻⁵³ for f64 outputs). `ref_error` has per output
    max |fp32 reference − y64| over the finite elements, 0 for integers. `also` lists indices and other
    integers that serve as well as those in y64: one tensor (output, element, integer) of shape (k, 3), or none.
    `picked` has the values (rows, n) that an output's indices chose among where any of equal ones serves; `equal` says
    of each (output, elements of one step along the dimension chosen along); of several indices each may come only once.
    `moot` says on what nobody defines an output rests here: "order", which of equal values a sort happens to name,
    "rounding", the order in which terms are added, "range", an integer made of a number that it cannot hold, or a
    product that leaves the range of single precision on its way and comes back; else it is empty.
    """

    y64: SharedTensors
    d: SharedTensors
    ref_error: tuple[float, ...]
    also: SharedTensors = field(default_factory=lambda: SharedTensors([]))
    picked: SharedTensors = field(default_factory=lambda: SharedTensors([]))
    equal: tuple[tuple[int, int], ...] = ()
    moot: str = ""

    def close(self) -> None:
        for tensors in (self.y64, self.d, self.also, self.picked):
            tensors.close()


class _Worker:
    def __init__(self, process: WorkerProcess) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def timeout_s(self) -> float:
        """How long one request may take; can be set between requests."""
        return self._process.timeout_s

    @timeout_s.setter
    def timeout_s(self, seconds: float) -> None:
        self._process.timeout_s = seconds

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Kills the process; safe to call twice."""
        self._process.close()


Worker = TypeVar("Worker", bound=_Worker)


def _decoded(method: Callable[Concatenate[Worker, Given], Found]) -> Callable[Concatenate[Worker, Given], Found]:
    """A method that ends the process where its answer cannot be what it should be: task code can forge one."""

    @wraps(method)
    def decoded(self: Worker, /, *args: Given.args, **kwargs: Given.kwargs) -> Found:
        try:
            return method(self, *args, **kwargs)
        except EvoforgeError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, MemoryError):
            raise self._process.failure(f"broke its protocol in {method.__name__}") from None

    return decoded


class ReferenceWorker(_Worker):
    """Runs the reference: shapes, inputs, fp64 outputs and their sensitivity.

    Every process made with the same `seed` has the same weights; where a request names `weights`, a seed,
    it is done under weights drawn anew. The process starts at once and in the background; the first
    call waits for it.

    Args:
        threads: torch threads and CPUs.
        isa: the target's ISA, to which torch's own kernels are held.
        timeout_s: limit of one request.
        signatures: what another process of the task was described as, and this one's tensors must be.
    """

    def __init__(
        self, task: Task, *, threads: int = 1, seed: int = 0, isa: str = "native", timeout_s: float = 300.0,
        signatures: Mapping[str, Signature] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            WorkerProcess(task, "reference", side="reference", threads=threads, seed=seed, isa=isa, timeout_s=timeout_s)
        )
        self._signatures = dict(signatures or {})

    @_decoded
    def describe(self) -> dict[str, Signature]:
        """The signature of every workload, from running the model once.

        Raises:
            TaskError: the task cannot be run, with file and line; or it needs more memory than there is.
            UnsupportedError: a tensor kind that is not covered.
            WorkerError: the process died or took too long.
        """
        if not self._signatures:
            answer, _ = self._process.call("describe", f"describing task {self._process.task.name}")
            self._signatures = {name: Signature.from_json(data) for name, data in answer["signatures"].items()}
        return dict(self._signatures)

    def _described(self, workload: str, group: str) -> Sequence[TensorSpec] | None:
        """What the tensors must be by `describe`; None before it."""
        known = self._signatures.get(workload)
        return getattr(known, group) if known else None

    @_decoded
    def analyse(self, function: str, workload: str) -> Any:
        """What ``module:function`` returns in the child for (eval-mode module, list of example inputs)."""
        answer, _ = self._process.call(
            "analyse", f"analysing workload {workload} with {function}", function=function, workload=workload
        )
        return answer["value"]

    @_decoded
    def constants(self, workload: str, weights: int | None = None) -> SharedTensors:
        """Parameters, then buffers: cst0 …; the caller closes it."""
        answer, fds = self._process.call(
            "constants", f"copying the weights of workload {workload}", workload=workload, weights=weights
        )
        return _shared(answer["specs"][0], fds[0], self._described(workload, "constants"))

    @_decoded
    def inputs(self, workload: str, seed: int, family: str = "given") -> SharedTensors:
        """One input set of a family (`FAMILIES`, `EXTREMES`, `MASKS`, with one of `DOMAINS`); equal seeds give equal
        sets. The caller closes it."""
        families = (*FAMILIES, *EXTREMES, MASKS)
        if family not in {name + domain for name in families for domain in DOMAINS}:
            raise UsageError(f"expected an input family of {', '.join(families)}, got {family!r}")
        answer, fds = self._process.call(
            "inputs", f"making inputs of workload {workload}", workload=workload, seed=seed, family=family
        )
        return _shared(answer["specs"][0], fds[0], self._described(workload, "inputs"))

    @_decoded
    def reference(
        self, workload: str, inputs: SharedTensors, weights: int | None = None, *, strict: bool = False
    ) -> Reference:
        """The fp64 outputs for `inputs`, their sensitivity and the fp32 reference's error.

        Under `strict` outputs that inputs do move are moot, too, if rounding moves them beyond their tolerance.

        Raises:
            TaskError: the model fails in double precision, with the reason.
        """
        what = f"running the fp64 reference of workload {workload}"
        with _lent([inputs]) as lent:
            fields = {"workload": workload, "weights": weights, "strict": strict}
            answer, fds = self._process.call("reference", what, lent, **fields)
        outputs = self._described(workload, "outputs")
        exact = outputs and [_dense(spec, "f64" if spec.is_float else "i64") for spec in outputs]
        scales = outputs and [_dense(spec, scale_dtype(spec.dtype)) for spec in outputs if spec.is_float]
        y64, d, also, picked = (
            _shared(specs, fd, expected)
            for specs, fd, expected in zip(answer["specs"], fds, (exact, scales, None, None), strict=True)
        )
        ref_error = tuple(map(float, answer["ref_error"]))
        if len(ref_error) != len(y64.specs) or not all(map(math.isfinite, ref_error)):
            raise WorkerError(f"expected an error for each of {len(y64.specs)} outputs from a worker, got {ref_error}")
        if [spec.shape[1:] for spec in also.specs] not in ([], [(3,)]):
            raise WorkerError(f"expected other indices of shape (k, 3) from a worker, got {also.specs}")
        equal = tuple((int(at), int(inner)) for at, inner in answer["equal"])
        for (at, inner), spec in zip(equal, picked.specs, strict=True):
            rows = spec.shape[0] if len(spec.shape) == 2 else 0
            fits = rows > 0 < inner and 0 <= at < len(y64.specs) and rows % inner == 0
            if not fits or y64.specs[at].dtype != "i64" or y64.specs[at].numel % rows:
                raise WorkerError(f"expected rows that output {at} chose among from a worker, got {spec}")
        return Reference(y64, d, ref_error, also, picked, equal, str(answer["moot"]))

    @_decoded
    def outputs(
        self, workload: str, inputs: SharedTensors, precision: Precision = "fp32", weights: int | None = None
    ) -> SharedTensors:
        """What the module itself computes, with the signature's output specs.

        ``fp32`` is the module in single precision, rounded to the outputs' types (a 16-bit task's
        reference); ``bf16`` the whole module in bfloat16. f64 tasks run as they are under ``fp32``.
        """
        what, fields = f"running workload {workload} in {precision}", {"precision": precision, "weights": weights}
        with _lent([inputs]) as lent:
            answer, fds = self._process.call("outputs", what, lent, workload=workload, **fields)
        return _shared(answer["specs"][0], fds[0], self._described(workload, "outputs"))


class BaselineWorker(_Worker):
    """Runs PyTorch as `side` (one of `SIDES`) on the judge's inputs, by the judge's clock.

    Outputs alternate between two held slots, as kernels' do. Nothing blocks before `run`: the
    process starts and compiles in the background.
    """

    def __init__(
        self,
        task: Task,
        *,
        side: str,
        threads: int = 1,
        seed: int = 0,
        isa: str = "native",
        timeout_s: float = 600.0,
    ) -> None:
        super().__init__(
            WorkerProcess(task, f"{side} baseline", side=side, threads=threads, seed=seed, isa=isa, timeout_s=timeout_s)
        )
        self.side = side
        self._failed: str | None = None

    def prepare(self, workload: str, sets: Sequence[SharedTensors]) -> None:
        """Hands over the input sets, loads the model and warms it up, in the background.

        The sets stay shared: what the judge writes to them later, the baseline reads. Preparing a
        workload again replaces its sets and compiles nothing anew.
        """
        for at in range(0, len(sets), MAX_FDS):
            last = at + MAX_FDS >= len(sets)
            what = f"preparing workload {workload}" if last else f"mapping the inputs of workload {workload}"
            with _lent(sets[at : at + MAX_FDS]) as lent:
                self._process.post("prepare", what, lent, workload=workload, first=at == 0, last=last)

    def ready(self, timeout_s: float = 0.0) -> bool:
        """Whether everything posted by `prepare` is done; waits at most `timeout_s`.

        Raises:
            WorkerError: it failed (torch.compile's reason), now or before.
        """
        if self._failed:
            raise WorkerError(self._failed)
        deadline = time.monotonic() + timeout_s
        try:
            while self._process.pending:
                if self._process.collect(max(0.0, deadline - time.monotonic())) is None:
                    return False
        except (WorkerError, TaskError, UnsupportedError) as error:
            self._failed = str(error)
            raise WorkerError(self._failed) from None
        return True

    def run(self, workload: str, n: int, start: int, *, base: int = 0, span: int | None = None) -> float:
        """Seconds that n calls took, from outside; call i reads set base + (start + i) mod span.

        The default `span` is all sets from `base` on. The process is stopped until the next request.
        """
        fields = {"workload": workload, "n": n, "start": start, "base": base, "span": span}
        return self._timed(f"running workload {workload}", fields)

    def empty(self) -> float:
        """Seconds of a round trip that runs nothing."""
        return self._timed("running nothing", {"workload": None, "n": 0, "start": 0, "base": 0, "span": None})

    def _timed(self, what: str, fields: Mapping[str, Any]) -> float:
        self._wait()
        began = time.perf_counter()
        self._process.call("run", what, **fields)
        seconds = time.perf_counter() - began
        self._process.freeze()
        return seconds

    def _wait(self) -> None:
        if not self.ready(self._process.timeout_s):
            raise WorkerError(
                f"the {self._process.role} process of task {self._process.task.name} did not finish "
                f"{self._process.pending[0]} within {self._process.timeout_s:g} s"
            )


@contextmanager
def _lent(sets: Sequence[SharedTensors]) -> Iterator[list[int]]:
    """Descriptors to send: the task's code must not change what other calls and kernels read."""
    fds: list[int] = []
    try:
        fds += (inputs.read_only_fd() for inputs in sets)
        yield fds
    finally:
        for fd in fds:
            os.close(fd)


def _dense(spec: TensorSpec, dtype: str) -> TensorSpec:
    """The contiguous tensor of that shape."""
    strides = itertools.accumulate(reversed(spec.shape[1:]), lambda step, size: step * max(size, 1), initial=1)
    return TensorSpec(spec.name, spec.shape, tuple(strides)[::-1] if spec.shape else (), dtype)


def _shared(rows: Sequence[Any], fd: int, expected: Sequence[TensorSpec] | None = None) -> SharedTensors:
    """Tensors that a worker made, which can shrink them no more: to read what is gone would end this process.

    Raises:
        WorkerError: it is no such memory, too little, or holds other tensors than expected.
    """
    specs = [TensorSpec(name, tuple(shape), tuple(step), dtype) for name, shape, step, dtype in rows]
    try:
        if expected is not None and [_layout(spec) for spec in specs] != [_layout(spec) for spec in expected]:
            raise ValueError(f"others than the {len(expected)} that were described")
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        return SharedTensors(specs, fd)
    except (OSError, ValueError, OverflowError) as error:
        os.close(fd)
        raise WorkerError(f"expected memory for {len(specs)} tensors from a worker, got: {error}") from None


def _layout(spec: TensorSpec) -> tuple[object, ...]:
    """What says where an element lies: strides of single elements do not."""
    steps = tuple(step for step, size in zip(spec.stride, spec.shape, strict=True) if size > 1)
    return spec.dtype, spec.shape, steps if spec.numel else ()
