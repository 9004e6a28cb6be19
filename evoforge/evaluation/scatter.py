"""What writing every call's outputs to a place of its own costs on this machine, by a kernel that does nothing else."""

from __future__ import annotations

import statistics

from evoforge.core import DTYPES, Status
from evoforge.evaluation.built import Built
from evoforge.evaluation.check import Samples
from evoforge.evaluation.material import Material
from evoforge.evaluation.native import native_program
from evoforge.evaluation.shared import SharedTensors
from evoforge.evaluation.stand import Stand
from evoforge.evaluation.timing import Stopwatch
from evoforge.evaluation.verify import SLOW_SCATTER, SampledBatches

__all__ = ["know_scatter"]

_PROCESSES = 5


def know_scatter(stand: Stand, material: Material, *, threads: bool = False) -> float:
    """Bytes per second that outputs are written which lie in no cache near the writer, beyond its work in a long batch.

    The median of five fresh processes, at least `SLOW_SCATTER`: what is slower is somebody else's noise. Measured
    once per material, and only where a brief batch has more than two calls.

    Args:
        threads: by all threads, which wake for every call and part, instead of by one.
    """
    known = material.scattered_bytes_per_s
    if threads not in known and material.answers and material.spare:
        writer = _writer(threads)
        rates = [_rate(stand, material, writer) for _ in range(_PROCESSES)]
        known[threads] = max(SLOW_SCATTER, statistics.median(rates))
    return known.get(threads, SLOW_SCATTER)


def _rate(stand: Stand, material: Material, writer: Built) -> float:
    with stand.timed_runner(writer, material) as runner:
        limit_s = stand.limit_s(material)
        batches = _Unchecked(runner, material, stand.task.tolerance, stand.rng, limit_s=limit_s, whole=True)
        brief = batches.brief()
        watch = Stopwatch(batches, stand.rng)
        watch.calibrate()
        watch.batch_ms()
    beyond_s = min(brief.seconds, brief.busy_s) - watch.work_s * brief.calls
    return brief.calls * material.outputs[0].total_bytes / max(beyond_s, 1e-9)


class _Unchecked(SampledBatches):
    """What the writer writes is never right."""

    def _check(self, looked_at: Samples | SharedTensors, index: int) -> None:
        return


def _writer(threads: bool) -> Built:
    widths = ",".join(str(width) for width in DTYPES.values())
    # Stores as a kernel has them: memset has a way of its own for large blocks.
    flags = ["-march=native", "-fno-tree-loop-distribute-patterns", f"-DWIDTHS={widths}"]
    if threads:
        flags.append("-fopenmp")
    return Built(Status.CORRECT, library_path=native_program("writer.c", *flags, shared=True))
