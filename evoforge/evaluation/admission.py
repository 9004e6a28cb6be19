"""Is a task fit to be searched? What must be accepted is, and what must be rejected is.

Of 237 scaled public problems, nine accepted zeros and 33 the output for other inputs at a loose
tolerance: a search on such a task finds a cheat, not a kernel.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from evoforge.core import PROTOCOL_VERSION, Signature, TensorSpec, Tolerance
from evoforge.errors import EvoforgeError, TaskError, WorkerError
from evoforge.evaluation.check import check_outputs
from evoforge.evaluation.shared import SharedTensors
from evoforge.evaluation.worker import DOMAINS, SURE_EXTREMES, Precision, Reference, ReferenceWorker
from evoforge.paths import cache_dir

__all__ = ["Admission", "Control", "admit"]

_ELSEWHERE = "outputs for other inputs"
_DRAWS, _APART = 4, 1000
_ITSELF = "the reference itself"
_HALF = "outputs computed in half precision"
_CONTROLS = 9  # their version: verdicts are kept by it
_NOBODYS_ORDER = (
    "an output rests on which of equal values torch happens to name first, which it leaves open; "
    "sort with stable=True, or take topk with sorted=True of values that are never equal"
)
_SAME = (
    "get_inputs() returns the same numbers under every seed, so a kernel could keep its answers; draw them with "
    "torch's own functions, without a generator"
)
_Accepts = Callable[[SharedTensors, Reference, Tolerance], tuple[bool, str]]


@dataclass(frozen=True)
class Control:
    """One output, put in place of the right one, and what the judge said to it."""

    workload: str
    output: str
    name: str
    should_pass: bool
    passed: bool
    detail: str = ""
    override: str = ""

    @property
    def held(self) -> bool:
        """Whether the judge said the right thing, or the task's author answers for it (`override`)."""
        return self.passed == self.should_pass or bool(self.override and not self.should_pass)

    def __str__(self) -> str:
        if self.should_pass and self.name != _ITSELF:
            return f"workload {self.workload}: {self.detail}"
        if self.should_pass:
            return f"workload {self.workload}: the reference does not accept itself: {self.detail}"
        return (
            f"workload {self.workload}: {self.name} pass for {self.output}, so a wrong kernel would too; "
            "mend the task or answer for it with ACCEPT in the task file"
        )


@dataclass(frozen=True)
class Admission:
    """The verdict on a task, with every control that was tried."""

    controls: tuple[Control, ...]

    @property
    def fit(self) -> bool:
        return all(control.held for control in self.controls)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the task is unfit, a sentence for each output; empty when it is fit."""
        lost: dict[tuple[str, str, bool], list[Control]] = {}
        for control in self.controls:
            if not control.held:
                lost.setdefault((control.workload, control.output, control.should_pass), []).append(control)
        return tuple(str(replace(some[0], name=", ".join(one.name for one in some))) for some in lost.values())


def admit(
    worker: ReferenceWorker,
    signatures: Mapping[str, Signature],
    tolerance: Tolerance,
    *,
    key: str | None = None,
    seed: int = 0,
    accepts: _Accepts | None = None,
    overrides: Mapping[str, str] | None = None,
) -> Admission:
    """Tries the controls on every workload, one output at a time, the others being right.

    A negative control that passes is tried again on other inputs, under weights drawn anew where the task has weights
    and can bear others, and on `SURE_EXTREMES`, as far as the task bears them: so the judge tries whatever would be an
    elite, and a layer that begins as an identity, or is one on get_inputs()'s numbers, is a task all the same.

    Args:
        key: the task's id: the verdict is then kept in the cache and returned at once next time.
        seed: of the inputs; ``seed + 1`` makes the other inputs.
        overrides: names of negative controls that may pass all the same, with the author's reasons
            (`evoforge.evaluation.tasks.accepted_controls`).
        accepts: (outputs, reference, tolerance) → (passed, reason); by default the judge's own check.
    """
    path = _cache_path(key, tolerance) if key else None
    kept = _read(path) if path else None
    if kept is not None and accepts is None:
        return _overridden(kept, overrides or {})
    judge = accepts or _check
    controls: list[Control] = []
    for workload, signature in signatures.items():
        controls += _workload_controls(worker, workload, signature, tolerance, seed, judge)
    admission = Admission(tuple(controls))
    if path and accepts is None:
        _write(path, admission)
    return _overridden(admission, overrides or {})


def _overridden(admission: Admission, reasons: Mapping[str, str]) -> Admission:
    rows = (replace(one, override="" if one.should_pass else reasons.get(one.name, "")) for one in admission.controls)
    return Admission(tuple(rows))


def _check(outputs: SharedTensors, reference: Reference, tolerance: Tolerance) -> tuple[bool, str]:
    found = check_outputs(outputs, reference, tolerance)
    return found.passed, found.reason


def _workload_controls(
    worker: ReferenceWorker, workload: str, signature: Signature, tolerance: Tolerance, seed: int, accepts: _Accepts
) -> list[Control]:
    controls = partial(_controls, worker, workload, signature, tolerance, accepts)
    found = list(controls(seed))
    for ways in _other_ways(signature, seed):
        if not any(one.passed and not one.should_pass for one in found):
            break
        tries = (_borne(controls(seed + _DRAWS * _APART, weights, family)) for weights, family in ways)
        refused = next((one for one in tries if one is not None), {})
        found = [refused.get((one.output, one.name), one) for one in found]
    return found


def _other_ways(signature: Signature, seed: int) -> Iterator[list[tuple[int | None, str]]]:
    """(seed of the weights, family) of what would-be elites are judged on beside the task's own data; of each list the
    first that the task bears."""
    even = seed // 2 * 2  # with other buffers, and where it cannot bear those, without
    yield [(weights, "given") for weights in ((even, even + 1, None) if signature.constants else (None,))]
    if any(spec.is_float for spec in signature.inputs):
        for family in SURE_EXTREMES:
            yield [(None, family + domain) for domain in DOMAINS]


def _borne(controls: Iterator[Control]) -> dict[tuple[str, str], Control] | None:
    """Those that were refused, by (output, name); None where the task does not bear such data, as the judge has it."""
    try:
        found = list(controls)
    except WorkerError:
        raise
    except EvoforgeError:  # the reference raises on such data, which is an answer
        return None
    if not all(one.passed for one in found if one.should_pass):
        return None
    return {(one.output, one.name): one for one in found if not one.passed}


def _controls(
    worker: ReferenceWorker,
    workload: str,
    signature: Signature,
    tolerance: Tolerance,
    accepts: _Accepts,
    seed: int,
    weights: int | None = None,
    family: str = "given",
) -> Iterator[Control]:
    """Every control, under the workload's own weights or under those of the seed `weights`.

    What half precision gives to the bit, as a sign, is no wrong output, and no control.
    """

    def outputs(given: SharedTensors, precision: Precision = "fp32") -> SharedTensors:
        return keep(worker.outputs(workload, given, precision, weights))

    with _Closing() as keep:
        for draw in range(_DRAWS):
            inputs = keep(worker.inputs(workload, seed + draw * _APART, family))
            reference = worker.reference(workload, inputs, weights)
            keep(reference)
            if reference.moot != "order":
                break
        else:
            yield Control(workload, "all outputs", "another order of equal values", True, False, _NOBODYS_ORDER)
            return
        right = outputs(inputs)
        if not _repeats(right, outputs(inputs)):
            # Its randomness would look like sensitivity, and the tolerance would swallow everything.
            detail = "two runs on the same inputs differ; take random operators out of forward()"
            yield Control(workload, "all outputs", _ITSELF, True, False, detail)
            return
        passed, reason = accepts(right, reference, tolerance)
        own = weights is None and family == "given"
        if not own and (reference.moot or not all(np.isfinite(y).all() for y in reference.y64.arrays())):
            passed, reason = False, "such data gives nothing to compare"
        yield Control(workload, "all outputs", _ITSELF, True, passed, reason)
        if not passed:
            return
        drawn = (keep(worker.inputs(workload, seed + 1 + draw, family)) for draw in range(_DRAWS))
        different = next((one for one in drawn if not _same(inputs, one)), None)
        if different is None:
            yield Control(workload, "all outputs", "inputs of other seeds", True, False, _SAME)
            return
        others = dict(_other_outputs(outputs, signature, inputs, right, outputs(different), keep))
        for index, spec in enumerate(signature.outputs):
            held = right.array(index).copy()
            for name, wrong in _wrong(index, spec, signature, inputs, reference, held, others):
                right.array(index)[...] = wrong
                passed, reason = accepts(right, reference, tolerance)
                if name != _HALF or right.array(index).tobytes() != held.tobytes():
                    yield Control(workload, spec.name, name, False, passed, reason)
            right.array(index)[...] = held


def _same(first: SharedTensors, second: SharedTensors) -> bool:
    return all(np.array_equal(first.bytes_of(at), second.bytes_of(at)) for at in range(len(first.specs)))


def _repeats(first: SharedTensors, second: SharedTensors) -> bool:
    """Whether two runs agree far beyond what the order of a sum can change."""
    for index, spec in enumerate(first.specs):
        if np.array_equal(first.bytes_of(index), second.bytes_of(index)):
            continue
        a, b = _values(spec, first.array(index)), _values(spec, second.array(index))
        scale = float(np.abs(a, where=np.isfinite(a), out=np.zeros_like(a)).max(initial=0.0))
        if not np.allclose(a, b, rtol=1e-2, atol=1e-2 * scale, equal_nan=True):
            return False
    return True


def _values(spec: TensorSpec, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if spec.dtype == "bf16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array if spec.is_float else array.astype(np.float64)


def _other_outputs(
    outputs: Callable[..., SharedTensors],
    signature: Signature,
    inputs: SharedTensors,
    right: SharedTensors,
    elsewhere: SharedTensors,
    keep: Callable[[SharedTensors], SharedTensors],
) -> Iterator[tuple[str, list[SharedTensors | None]]]:
    """What the module itself gives for other inputs, for half of the data and in half precision, by output.

    That half is the first one; for an output that does not read the other one at all, while others do, that one. None
    for an output that reads neither.
    """
    count = len(signature.outputs)
    yield _ELSEWHERE, [elsewhere] * count
    if any(spec.is_float and spec.numel > 1 for spec in signature.inputs):
        first = outputs(keep(_halved(signature, inputs, last=False)))
        found: list[SharedTensors | None] = [first] * count
        unread = [first.array(at).tobytes() == right.array(at).tobytes() for at in range(count)]
        if any(unread) and not all(unread):
            second = outputs(keep(_halved(signature, inputs, last=True)))
            neither = [second.array(at).tobytes() == right.array(at).tobytes() for at in range(count)]
            # What reads neither half reads no floating number: whether it reads its inputs, others tell.
            found = [
                (None if none else second) if other else first for other, none in zip(unread, neither, strict=True)
            ]
        yield "outputs from half of the data", found
    if any(spec.dtype == "f32" for spec in signature.outputs):
        try:
            half = outputs(inputs, "bf16")
        except TaskError:  # torch has no such operator in bfloat16: the best that half precision can hold instead
            half = keep(_rounded(right))
        yield _HALF, [half] * count


def _rounded(right: SharedTensors) -> SharedTensors:
    """The outputs themselves, with float32 rounded to bfloat16."""
    found = SharedTensors(right.specs)
    for index, spec in enumerate(right.specs):
        found.array(index)[...] = right.array(index)
        if spec.dtype == "f32":
            bits = found.array(index).view(np.uint32)
            bits += 0x7FFF + (bits >> 16 & 1)
            bits &= np.uint32(0xFFFF0000)
    return found


def _halved(signature: Signature, inputs: SharedTensors, *, last: bool) -> SharedTensors:
    """The inputs with one half of the last dimension that has two, the first or the last, and zeros for the other."""
    halved = SharedTensors(signature.inputs)
    for index, spec in enumerate(signature.inputs):
        halved.array(index)[...] = inputs.array(index)
        if spec.is_float and spec.numel > 1:
            axis = max(at for at, size in enumerate(spec.shape) if size > 1)
            middle = (spec.shape[axis] + 1) // 2
            np.moveaxis(halved.array(index), axis, -1)[..., slice(middle) if last else slice(middle, None)] = 0
    return halved


def _wrong(
    index: int,
    spec: TensorSpec,
    signature: Signature,
    inputs: SharedTensors,
    reference: Reference,
    right: npt.NDArray[Any],
    others: Mapping[str, list[SharedTensors | None]],
) -> Iterator[tuple[str, npt.NDArray[Any] | float]]:
    """(what it is, the wrong values) for one output."""
    if spec.numel == 0:
        return
    yield "zeros", 0
    elsewhere = others[_ELSEWHERE][index]
    assert elsewhere is not None
    yield "constants", _constant(spec, reference.y64.array(index), elsewhere.array(index))
    for at, given in enumerate(signature.inputs):
        if (given.shape, given.dtype) == (spec.shape, spec.dtype):
            yield f"copies of {given.name}", inputs.array(at)
    rows = right.shape[0] if right.ndim else 1
    if rows > 1:
        half = right.copy()
        half[(rows + 1) // 2 :] = 0
        yield "outputs with half of the rows", half
    for name, all_outputs in others.items():
        other = all_outputs[index]
        # Rounding cannot change which of two integers is meant often enough to prove anything.
        if other is not None and (spec.dtype == "f32" or name != _HALF):
            yield name, other.array(index)


def _constant(spec: TensorSpec, y64: npt.NDArray[Any], elsewhere: npt.NDArray[Any]) -> Any:
    """The mean, the best that a constant can be, as the output holds it.

    Where all elements are the same number, as a loss is, that would be the answer itself: the mean of the output for
    other inputs.
    """
    finite = y64[np.isfinite(y64)]
    if finite.size and finite.min() == finite.max():
        known = np.asarray(_values(spec, elsewhere), dtype=np.float64)
        finite = known[np.isfinite(known)]
    mean = float(finite.mean()) if finite.size else 1.0
    if spec.dtype == "bf16":
        return np.uint16(np.float32(mean).view(np.uint32) >> 16)
    return mean if spec.is_float else round(mean)


class _Closes(Protocol):
    def close(self) -> None: ...


_Closable = TypeVar("_Closable", bound=_Closes)


class _Closing:
    """Closes what was kept, whatever happens."""

    def __init__(self) -> None:
        self._kept: list[_Closes] = []

    def __enter__(self) -> Callable[[_Closable], _Closable]:
        return self._keep

    def __exit__(self, *exc: object) -> None:
        for shared in self._kept:
            shared.close()

    def _keep(self, shared: _Closable) -> _Closable:
        self._kept.append(shared)
        return shared


def _cache_path(key: str, tolerance: Tolerance) -> Path:
    body = json.dumps(
        [key, asdict(tolerance), PROTOCOL_VERSION, _CONTROLS, metadata.version("torch"), metadata.version("evoforge")]
    )
    return cache_dir() / "admission" / f"{hashlib.sha256(body.encode()).hexdigest()[:24]}.json"


def _read(path: Path) -> Admission | None:
    try:
        return Admission(tuple(Control(**row) for row in json.loads(path.read_text())))
    except (OSError, ValueError, TypeError):
        return None


def _write(path: Path, admission: Admission) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(fd, "w") as file:
        json.dump([asdict(control) for control in admission.controls], file)
    Path(name).replace(path)
