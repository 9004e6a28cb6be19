"""What one workload is judged with: weights, secret input sets with references, the timing ring."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from evoforge.core import Signature, Tolerance
from evoforge.errors import EvoforgeError, WorkerError
from evoforge.evaluation.check import check_outputs, poison_slack
from evoforge.evaluation.shared import SharedTensors, available_bytes, rises
from evoforge.evaluation.timing import ring_size
from evoforge.evaluation.wire import PARTLY
from evoforge.evaluation.worker import DOMAINS, EXTREMES, FAMILIES, MASKS, SURE_EXTREMES, Reference, ReferenceWorker

__all__ = [
    "STRANGERS",
    "Known",
    "Material",
    "draw_extremes",
    "draw_known",
    "draw_touched",
    "draw_unseen",
    "know_ring",
    "lengthen_ring",
    "make_material",
    "widen_pool",
]

STRANGERS = 2
"""Sets of other families that lie behind the timing ring of a process; another two in the next."""

_POOL_BYTES = 1 << 30
_RING_BYTES = 768 << 20
_SPARE_BYTES = 32 << 20
_SEEDS = 1 << 31
_DRAWS = 4
_EXTREME_SETS = len(EXTREMES) + 5  # with masks, ties, an alike set and two mixed ones
_LARGE_SETS = 5  # extremes at least, of a workload of which 1 GiB holds fewer sets, where memory has them
_TIES = "halves"  # of nine values: they are equal to each other, and where rounding decides
_FAR = ("raised", "offset", "outliers")  # of what is mixed into the task's own data, the farthest first
_SMALL = "small"  # beside a bias what is left of them is as exact as sums happen to be
_FEW = 8  # elements that nobody sees who does not look at all
_TOUCHED = (1, 8, 64, 512)  # elements of a weight, as many as it takes to be seen in the outputs


@dataclass(frozen=True)
class Known:
    """An input set whose right answer is known; `family` says how it was drawn, `serial` which one it is.

    `constants` are the weights that it goes with where they are not the workload's own.
    """

    inputs: SharedTensors
    reference: Reference
    family: str
    constants: SharedTensors | None = None
    serial: int = field(default_factory=itertools.count().__next__)

    @property
    def finite(self) -> bool:
        return all(bool(np.isfinite(y64).all()) for y64 in self.reference.y64.arrays())

    def close(self) -> None:
        self.inputs.close()
        self.reference.close()
        if self.constants is not None:
            self.constants.close()


@dataclass
class Material:
    """One workload's memory, shared with its runners and baselines.

    The first two sets of `ring` are the first two of `pool`: timed batches end on sets whose right
    `answer` is known. All of the ring are drawn by get_inputs(), so that the time is that of the task's
    own data; other families are verified only. Where there is room the answers of all the ring are
    known. `spare` are further output buffers, so that a brief batch can write every answer to a place of
    its own. `copies` are its sets again and again, in memory of their own, as many as a cold ring needs.
    `dropped` names families on which the reference is not finite, is moot or does not accept itself.
    `extremes` are drawn when first wanted (`draw_extremes`), as is `touched` (`draw_touched`). `eager_s` is what one
    eager call takes.
    `scattered_bytes_per_s` is how fast one thread (False), or all (True), write outputs to places of their own
    (`know_scatter`).
    """

    name: str
    signature: Signature
    constants: SharedTensors | None
    outputs: tuple[SharedTensors, SharedTensors]
    pool: list[Known]
    fillers: list[SharedTensors]
    spare: tuple[SharedTensors, ...] = ()
    answers: dict[int, Reference] = field(default_factory=dict)
    copies: list[SharedTensors] = field(default_factory=list)
    dropped: tuple[str, ...] = ()
    extremes: tuple[Known, ...] | None = None
    widened: bool = False
    reserve: Known | None = None
    reserve_uses: int = 0
    touched: Known | None = None
    untouchable: bool = False
    eager_s: float = 0.0
    scattered_bytes_per_s: dict[bool, float] = field(default_factory=dict)

    @property
    def ring(self) -> list[SharedTensors]:
        return [self.pool[0].inputs, self.pool[1].inputs, *self.fillers]

    @property
    def sets(self) -> list[SharedTensors]:
        """The ring, then its copies."""
        return [*self.ring, *self.copies]

    @property
    def mapped(self) -> int:
        """How many sets a process maps, be it verified or timed: as many as either may want."""
        known = 3 + min(_EXTREME_SETS, max(_POOL_BYTES // max(_set_bytes(self), 1) - 2, _LARGE_SETS))
        return max(len(self.ring) + STRANGERS, known)

    @property
    def strangers(self) -> list[Known]:
        """Those sets of other families that have been drawn so far."""
        return [*self.pool[2:], *(self.extremes or ())]

    def answer(self, index: int) -> Reference | None:
        """The right answer for set `index` of the ring or of its copies, if it is known."""
        index %= len(self.fillers) + 2
        return self.pool[index].reference if index < 2 else self.answers.get(index)

    def close(self) -> None:
        for known in (*self.pool, *(self.extremes or ()), self.reserve, self.touched):
            if known is not None:
                known.close()
        for reference in self.answers.values():
            reference.close()
        weights = [self.constants] if self.constants else []
        for shared in (*self.fillers, *self.copies, *self.outputs, *self.spare, *weights):
            shared.close()


def make_material(
    worker: ReferenceWorker,
    name: str,
    signature: Signature,
    rng: np.random.Generator,
    *,
    l2_total_bytes: int,
) -> Material:
    """Draws two secret sets with their references and fills the ring; `widen_pool` adds the rest.

    Raises:
        TaskError: the reference fails in double precision.
        WorkerError: the reference process died.
    """
    constants = worker.constants(name) if signature.constants else None
    pool = [draw_known(worker, name, rng), draw_known(worker, name, rng)]
    count = ring_size(signature, l2_total_bytes)
    fillers = [worker.inputs(name, _seed(rng)) for _ in range(count - 2)]
    for index, inputs in enumerate((*(known.inputs for known in pool), *fillers)):
        poison_slack(inputs, index & 1)  # as before every verified call: what is only timed looks the same
    outputs = (SharedTensors(signature.outputs), SharedTensors(signature.outputs))
    room = min(count - 2, _SPARE_BYTES // max(outputs[0].total_bytes, 1))
    spare = tuple(SharedTensors(signature.outputs) for _ in range(room))
    return Material(name, signature, constants, outputs, pool, fillers, spare)


def draw_known(
    worker: ReferenceWorker, name: str, rng: np.random.Generator, family: str = "given", *, strict: bool = False
) -> Known:
    """A fresh input set under a secret seed, with its reference; another one where it happens to be moot."""
    draws = _DRAWS if family == "given" else 1
    while True:
        inputs = worker.inputs(name, _seed(rng), family)
        known, draws = Known(inputs, worker.reference(name, inputs, strict=strict), family), draws - 1
        if not draws or not known.reference.moot:
            return known
        known.close()


def draw_unseen(worker: ReferenceWorker, material: Material, tolerance: Tolerance, rng: np.random.Generator) -> Known:
    """A fresh input set under fresh weights; under the workload's own where the task cannot bear others.

    Raises:
        WorkerError: the reference process died.
    """
    if material.constants is not None:
        known = _under_other_weights(worker, material, tolerance, rng)
        if known is not None:
            return known
    return draw_known(worker, material.name, rng)


def draw_touched(
    worker: ReferenceWorker, material: Material, tolerance: Tolerance, rng: np.random.Generator
) -> Known | None:
    """A set and the workload's own weights but for one element of one of them, or for more where one is not seen in
    the outputs; None where the task has no weights, or bears or shows none so changed.

    Drawn once and kept. Who knows weights again by some of them is met.

    Raises:
        WorkerError: the reference process died.
    """
    if material.touched is None and material.constants is not None and not material.untouchable:
        for count in _TOUCHED:
            known = _under(worker, material, tolerance, rng, PARTLY * count + (_seed(rng) | 2), "touched")
            if known is None:
                continue
            if not _accepts_itself(worker, material.name, known, tolerance):  # under the workload's own weights
                material.touched = known
                break
            known.close()
        material.untouchable = material.touched is None
    return material.touched


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(_SEEDS))


def know_ring(worker: ReferenceWorker, material: Material) -> None:
    """Works out the answers of the whole ring where there is room: a kernel cannot know which are looked at.

    For when there is time, as `widen_pool`. Once per material.

    Raises:
        WorkerError: the reference process died.
    """
    if material.answers or len(material.ring) * _set_bytes(material) > _RING_BYTES:
        return
    for index, filler in enumerate(material.fillers, 2):
        answer = worker.reference(material.name, filler)
        if answer.moot:
            answer.close()
        else:
            material.answers[index] = answer


def _under_other_weights(
    worker: ReferenceWorker, material: Material, tolerance: Tolerance, rng: np.random.Generator
) -> Known | None:
    """A set and weights, both fresh, or None where the task itself fails under such weights."""
    seed = _seed(rng) // 4 * 4
    for weights in range(seed, seed + 4):  # with other buffers or without, as far as training goes or only moved
        if known := _under(worker, material, tolerance, rng, weights):
            return known
    return None


def _under(
    worker: ReferenceWorker, material: Material, tolerance: Tolerance, rng: np.random.Generator, weights: int,
    family: str = "given",
) -> Known | None:  # fmt: skip
    inputs, constants = worker.inputs(material.name, _seed(rng)), worker.constants(material.name, weights)
    try:
        reference = worker.reference(material.name, inputs, weights)
    except WorkerError:
        raise
    except EvoforgeError:  # the reference raises on such data, which is an answer
        inputs.close()
        constants.close()
        return None
    known = Known(inputs, reference, family, constants)
    if known.finite and not reference.moot and _accepts_itself(worker, material.name, known, tolerance, weights):
        return known
    known.close()
    return None


def lengthen_ring(material: Material, count: int) -> None:
    """Makes copies of the ring's sets until there are `count` sets; drawing that many would take seconds."""
    ring = material.ring
    for index in range(len(material.sets), count):
        copy, drawn = SharedTensors(material.signature.inputs), ring[index % len(ring)]
        for tensor in range(len(material.signature.inputs)):
            copy.bytes_of(tensor)[...] = drawn.bytes_of(tensor)
        material.copies.append(copy)


def widen_pool(worker: ReferenceWorker, material: Material, tolerance: Tolerance, rng: np.random.Generator) -> None:
    """Adds one set of another family, the first in random order that this task can bear.

    For when there is time: a first kernel is shown without it. Once per material; a pool that would
    outgrow 1 GiB stays as it is.

    Raises:
        WorkerError: the reference process died.
    """
    floating = any(spec.is_float for spec in material.signature.inputs)
    if material.widened or 3 * _set_bytes(material) > _POOL_BYTES or not floating:
        return
    material.widened = True
    for family in map(str, rng.permutation(FAMILIES[1:])):
        known = _bearable(worker, material, tolerance, rng, family)
        if known is not None:
            material.pool.append(known)
            return


def draw_extremes(
    worker: ReferenceWorker, material: Material, tolerance: Tolerance, rng: np.random.Generator
) -> tuple[Known, ...]:
    """A set of each of `EXTREMES` that this task can bear, and of `MASKS` where it is given bools, for would-be elites;
    drawn once and kept.

    Infinite inputs come only where the task declares a policy for NaN and ±Inf in its outputs; the other
    extremes must leave them finite. First comes a set that is one of the pool's but for an eighth of one input, in one
    piece (`alike`): who knows data by a glance at it is met. Multiples of ½ follow: which of equal values an index
    names shows in their ties, and how halves are rounded. Last come two that are the task's own data but
    for an eighth, or a few numbers here and there, of an extreme one (`mixed`; the few are from the farthest that the
    task can bear): who tells by a glance what family all of it is from is met. As many are drawn as 1 GiB has room for
    beside the pool, and of larger ones a few: `SURE_EXTREMES`, masks, and others up to five where memory has it.

    Raises:
        WorkerError: the reference process died.
    """
    if material.extremes is None:
        size = max(_set_bytes(material), 1)
        floating = any(spec.is_float for spec in material.signature.inputs)
        declared = tolerance.nonfinite != "unspecified"
        ties = [_TIES] if all(known.family != _TIES for known in material.pool) else []
        families = [*ties, *(one for one in EXTREMES if one != "infinite" or declared)] if floating else []
        if any(spec.dtype == "bool" for spec in material.signature.inputs):
            families.append(MASKS)
        splice = partial(_spliced, worker, material, tolerance, rng)
        draws = {"alike": partial(splice, material.pool[1], 0, "alike")}
        draws |= {family: partial(_bearable, worker, material, tolerance, rng, family) for family in families}
        chosen, first = list(draws), [family for family in (*SURE_EXTREMES, MASKS) if family in draws]
        few = max(len(first), min(_LARGE_SETS, available_bytes() // 4 // size))
        room = max(_POOL_BYTES // size - len(material.pool), few)
        if room < len(chosen):
            others = [family for family in chosen if family not in first]
            chosen = [*first, *(others[int(at)] for at in rng.permutation(len(others)))][:room]
        found = [known for family in chosen if (known := draws[family]()) is not None]
        far = [known for name in _FAR for known in found if known.family.startswith(name)]
        if far and len(found) + 2 <= room:
            eighth = splice(far[int(rng.integers(len(far)))], 0, "mixed")
            some = next(filter(None, (splice(one, _FEW, "mixed") for one in far)), None)
            found += [known for known in (eighth, some) if known is not None]
        material.extremes = tuple(found)
    return material.extremes


def _spliced(
    worker: ReferenceWorker, material: Material, tolerance: Tolerance, rng: np.random.Generator, other: Known,
    count: int, family: str,
) -> Known | None:  # fmt: skip
    """The pool's first set, but for some of one floating input that come from another set, `count` elements anywhere
    or an eighth in one piece (0): of one that differs there and does not rise, the largest where the other is the
    task's own."""
    first, second = material.pool[0].inputs, other.inputs
    inputs = SharedTensors(material.signature.inputs)
    for at in range(len(inputs.specs)):
        inputs.bytes_of(at)[...] = first.bytes_of(at)
    unlike = [
        at for at, spec in enumerate(inputs.specs)
        if spec.is_float and not np.array_equal(first.array(at), second.array(at)) and not rises(first.array(at))
    ]  # fmt: skip
    if not unlike:
        inputs.close()
        return None
    largest = max(unlike, key=lambda at: inputs.specs[at].nbytes)
    chosen = largest if other.family == "given" else int(rng.choice(unlike))
    spec, segment = inputs.specs[chosen], inputs.segments[chosen]
    data = slice(segment.data - segment.start, segment.data - segment.start + spec.nbytes)
    mine, theirs = (one.bytes_of(chosen)[data].reshape(-1, spec.itemsize) for one in (inputs, second))
    eighth = -(-len(mine) // 8)
    if count:
        places = rng.choice(np.flatnonzero((mine != theirs).any(axis=1)), count)
    else:
        places = np.arange(eighth) + rng.integers(len(mine) - eighth + 1)
    mine[places] = theirs[places]
    try:
        known = Known(inputs, worker.reference(material.name, inputs), family)
    except WorkerError:
        raise
    except EvoforgeError:  # the reference raises on such data, which is an answer
        inputs.close()
        return None
    if known.finite and not known.reference.moot and _accepts_itself(worker, material.name, known, tolerance):
        return known
    known.close()
    return None


def _set_bytes(material: Material) -> int:
    first = material.pool[0]
    return sum(item.total_bytes for item in (first.inputs, first.reference.y64, first.reference.d))


def _bearable(
    worker: ReferenceWorker, material: Material, tolerance: Tolerance, rng: np.random.Generator, family: str
) -> Known | None:
    """A set of the family, or None where the task itself fails on it or its answer is moot (then it is `dropped`).

    A task that cannot bear numbers of both signs gets their sizes, be it in one input, and one that bears none of those
    what is left of the family between the least and the largest number of its own (`DOMAINS`), of tiny ones nothing.

    Where tiny inputs stand beside a bias and the mean is taken away, what is left are differences that are zero by luck
    of the reference's own order of addition; where equal values' order in a sort decides, it is torch's own.
    """
    several = sum(spec.is_float for spec in material.signature.inputs) > 1
    vain = () if several else (" (last)", " (first)")
    inside = (" (inside)",) if family == "tiny" else ()  # they would all be one number
    domains = DOMAINS[:1] if family == MASKS else [one for one in DOMAINS if one not in (*vain, *inside)]
    for domain in domains:
        try:
            known = draw_known(worker, material.name, rng, family + domain, strict=family == _SMALL)
        except WorkerError:
            raise
        except EvoforgeError:  # the reference raises on such data, which is an answer
            continue
        borne = (family == "infinite" or known.finite) and not known.reference.moot
        if borne and _accepts_itself(worker, material.name, known, tolerance):
            return known
        known.close()
    material.dropped += (family,)
    return None


def _accepts_itself(
    worker: ReferenceWorker, name: str, known: Known, tolerance: Tolerance, weights: int | None = None
) -> bool:
    outputs = worker.outputs(name, known.inputs, weights=weights)
    try:
        return check_outputs(outputs, known.reference, tolerance).passed
    finally:
        outputs.close()
