"""What one workload is judged with: weights, secret input sets with references, the timing ring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from evoforge.core import Signature, Tolerance
from evoforge.errors import EvoforgeError, TaskError, WorkerError
from evoforge.evaluation.check import check_outputs
from evoforge.evaluation.shared import SharedTensors
from evoforge.evaluation.timing import ring_size
from evoforge.evaluation.worker import FAMILIES, Reference, ReferenceWorker

__all__ = ["Known", "Material", "draw_known", "make_material"]

_POOL_BYTES = 1 << 30
_SEEDS = 1 << 31


@dataclass(frozen=True)
class Known:
    """An input set whose right answer is known; `family` says how it was drawn."""

    inputs: SharedTensors
    reference: Reference
    family: str

    @property
    def finite(self) -> bool:
        return all(bool(np.isfinite(y64).all()) for y64 in self.reference.y64.arrays())

    def close(self) -> None:
        self.inputs.close()
        self.reference.close()


@dataclass
class Material:
    """One workload's memory, shared with its runners and baselines.

    The first two sets of `ring` are the first two of `pool`: timed batches end on sets whose right
    answer is known. All of the ring are drawn by get_inputs(), so that the time is that of the task's
    own data; other families are verified only. `dropped` names families on which the reference is
    not finite or does not accept itself.
    """

    name: str
    signature: Signature
    constants: SharedTensors | None
    outputs: tuple[SharedTensors, SharedTensors]
    pool: list[Known]
    fillers: list[SharedTensors]
    dropped: tuple[str, ...] = ()
    eager_s: float = field(default=0.0)

    @property
    def ring(self) -> list[SharedTensors]:
        return [self.pool[0].inputs, self.pool[1].inputs, *self.fillers]

    def close(self) -> None:
        for known in self.pool:
            known.close()
        for shared in (*self.fillers, *self.outputs, *([self.constants] if self.constants else [])):
            shared.close()


def make_material(
    worker: ReferenceWorker,
    name: str,
    signature: Signature,
    tolerance: Tolerance,
    rng: np.random.Generator,
    *,
    l2_total_bytes: int,
) -> Material:
    """Draws the secret sets, computes their references and fills the ring.

    Raises:
        TaskError: the reference fails in double precision.
        WorkerError: the reference process died.
    """
    constants = worker.constants(name) if signature.constants else None
    pool = [draw_known(worker, name, rng), draw_known(worker, name, rng)]
    known, dropped = _other_family(worker, name, signature, tolerance, rng, pool)
    count = ring_size(signature, l2_total_bytes)
    fillers = [worker.inputs(name, _seed(rng)) for _ in range(count - 2)]
    outputs = (SharedTensors(signature.outputs), SharedTensors(signature.outputs))
    return Material(name, signature, constants, outputs, [*pool, *known], fillers, dropped)


def draw_known(worker: ReferenceWorker, name: str, rng: np.random.Generator, family: str = "given") -> Known:
    """A fresh input set under a secret seed, with its reference."""
    inputs = worker.inputs(name, _seed(rng), family)
    return Known(inputs, worker.reference(name, inputs), family)


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(_SEEDS))


def _other_family(
    worker: ReferenceWorker,
    name: str,
    signature: Signature,
    tolerance: Tolerance,
    rng: np.random.Generator,
    pool: Sequence[Known],
) -> tuple[list[Known], tuple[str, ...]]:
    """One set of another family, the first in random order that this task can bear."""
    size = sum(item.total_bytes for item in (pool[0].inputs, pool[0].reference.y64, pool[0].reference.d))
    if 3 * size > _POOL_BYTES or not any(spec.is_float for spec in signature.inputs):
        return [], ()
    dropped: list[str] = []
    for family in rng.permutation(FAMILIES[1:]):
        try:
            known = draw_known(worker, name, rng, str(family))
        except WorkerError:
            raise
        except (TaskError, EvoforgeError):  # the reference raises on such data, which is an answer
            dropped.append(str(family))
            continue
        if known.finite and _accepts_itself(worker, name, known, tolerance):
            return [known], tuple(dropped)
        known.close()
        dropped.append(str(family))
    return [], tuple(dropped)


def _accepts_itself(worker: ReferenceWorker, name: str, known: Known, tolerance: Tolerance) -> bool:
    outputs = worker.outputs(name, known.inputs)
    try:
        return check_outputs(outputs, known.reference, tolerance).passed
    finally:
        outputs.close()
