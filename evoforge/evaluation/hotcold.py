"""Hot and cold: what a call takes when everything is in cache, and when nothing is.

Rankings flip with the size of the ring of inputs: plain stores beside non-temporal ones on 256 KiB are
twice as fast with a ring of 1 MiB and a third slower with 256 MiB. The objective is warm (`ring_size`).
These two stand beside it, for information: a hot batch repeats one input, so a kernel that kept its
answer would look fast in it. Every batch is checked as a warm one is, which sees a wrong answer and
not a kept one.
"""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from evoforge.core import Block, WorkloadTiming
from evoforge.evaluation.material import Material, lengthen_ring
from evoforge.evaluation.priority import measuring
from evoforge.evaluation.runner import Runner
from evoforge.evaluation.timing import Stopwatch, cold_size, paired_block
from evoforge.evaluation.verify import SampledBatches

if TYPE_CHECKING:
    from evoforge.evaluation.built import Built
    from evoforge.evaluation.stand import Stand

__all__ = ["SLOW_HOT", "is_slow_hot", "time_hot_and_cold"]

SLOW_HOT = "slow_hot"
"""The flag of a kernel that takes over 10% longer than its baseline when both are hot."""

_PROCESSES = 3
_SLOW = 1 / 1.1
_SPARE_DESCRIPTORS = 256


def time_hot_and_cold(
    stand: Stand, built: Built, material: Material, sides: Sequence[str], warm: Sequence[Block]
) -> tuple[tuple[Block, ...], tuple[Block, ...]]:
    """(hot blocks, cold blocks): one of each, beside `sides`, in each of three fresh processes.

    Hot is one input set and both output buffers; empty where they, the weights, the packed weights
    and the workspace do not fit half of the L2. Cold is a ring of 256 MiB (`cold_size`); where the
    warm ring is that large, it is `warm`; empty where such a ring cannot be made. Both are empty for a
    kernel whose object can keep state: that one could keep the answer.

    Raises:
        KernelFault: a batch failed, or a sampled element is not right.
        WorkerError: a baseline process died.
    """
    if built.stateful:
        return (), ()
    wanted = cold_size(material.signature)
    is_cold = wanted is not None and wanted <= len(material.ring)
    if wanted is not None and wanted > len(material.sets) and _allow_descriptors(wanted):
        lengthen_ring(material, wanted)
    hot: list[Block] = []
    cold: list[Block] = []
    for process in range(_PROCESSES):
        with measuring(stand.target), ExitStack() as stack:
            runner = stack.enter_context(stand.timed_runner(built, material, material.sets))
            if material.copies:
                cold.append(_block(stand, runner, material, sides, process, len(material.sets)))
            if _footprint_bytes(runner, material) <= stand.target.l2_total_bytes // 2:
                hot.append(_block(stand, runner, material, sides, process, 1))
        if not hot and not cold:
            break
    return tuple(hot), tuple(warm if is_cold else cold)


def is_slow_hot(timing: WorkloadTiming) -> bool:
    """Whether the kernel takes over 10% longer than its baseline when both are hot."""
    if not timing.hot:
        return False
    ratio = WorkloadTiming(timing.workload, timing.baseline, timing.hot).speedup()
    return ratio is not None and ratio < _SLOW


def _block(stand: Stand, runner: Runner, material: Material, sides: Sequence[str], process: int, sets: int) -> Block:
    """One batch of the kernel and of every side in random order, each rotating through `sets` sets."""
    batches = SampledBatches(
        runner, material, stand.task.tolerance, stand.rng, limit_s=stand.limit_s(material), sets=sets
    )
    watches = {side: stand.baselines.stopwatch(side, material.name, sets) for side in sides}
    watches["candidate"] = Stopwatch(batches, stand.rng)
    watches["candidate"].calibrate()
    times = paired_block(watches, stand.rng)
    return Block.of(process, times)


def _footprint_bytes(runner: Runner, material: Material) -> int:
    """What a hot batch of this kernel touches."""
    signature, info = material.signature, runner.info
    tensors = signature.input_bytes + signature.constant_bytes + 2 * signature.output_bytes
    return tensors + info.workspace_bytes + info.packed_bytes


def _allow_descriptors(sets: int) -> bool:
    """Whether so many sets can be held and handed to a runner; raises this process's soft limit to that."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = len(list(Path("/proc/self/fd").iterdir())) + 2 * sets + _SPARE_DESCRIPTORS
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return True
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
        return True
    return False
