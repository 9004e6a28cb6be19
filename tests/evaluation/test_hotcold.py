"""What is measured hot and cold, and that it is checked. Nothing here says how long anything takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evoforge.core import Block, Candidate, Status, Target, Tolerance, WorkloadTiming
from evoforge.evaluation.build import Builder
from evoforge.evaluation.hotcold import is_slow_hot
from evoforge.evaluation.judge import Judge
from evoforge.evaluation.material import Material, lengthen_ring, make_material
from evoforge.evaluation.runner import Runner
from evoforge.evaluation.tasks import load_task
from evoforge.evaluation.verify import SampledBatches, WrongOutput
from evoforge.evaluation.worker import ReferenceWorker

L2 = 4 << 20
TASK = """
import torch
N = 64
WORKLOADS = [{"name": "small"}, {"name": "middle", "N": 256}, {"name": "large", "N": 1024}]

class Model(torch.nn.Module):
    def forward(self, a, b):
        return a + b

def get_inputs():
    return [torch.randn(N, N), torch.randn(N, N)]

def get_init_inputs():
    return []
"""
COUNTS = """
#include "evoforge.h"
static long calls;
extern "C" int evo_run(const evo_call* call) {
    calls++;
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    for (int64_t i = 0; i < n; i++) EVO_OUT(float, 0)[i] = EVO_IN(float, 0)[i] + EVO_IN(float, 1)[i];
    return calls < 0;
}
"""


@pytest.fixture(scope="module")
def task_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("task") / "add.py"
    path.write_text(TASK)
    return path


@pytest.fixture(scope="module")
def judge(task_file: Path, one_thread: Target) -> Iterator[Judge]:
    target = replace(one_thread, fingerprint={**one_thread.fingerprint, "l2_total_bytes": L2})
    with Judge(load_task(str(task_file)), target, seed=1) as opened:
        opened.open()
        yield opened


def confirmed(judge: Judge, source: str, *, hot_and_cold: bool) -> dict[str, WorkloadTiming]:
    """A busy machine may make honest times look suspect; three times in a row it does not."""
    for _ in range(3):
        found = judge.confirm(Candidate("cpp", source), {}, processes=1, sides=("eager",), hot_and_cold=hot_and_cold)
        if found.status is not Status.TIMING_SUSPECT:
            break
    assert found.status is Status.CORRECT, found.reason
    assert ("hot_cold" in found.seconds) == hot_and_cold
    assert ("slow_hot" in found.flags) == any(is_slow_hot(timing) for timing in found.timings)
    return {timing.workload: timing for timing in found.timings}


def test_hot_needs_half_of_the_cache_and_cold_a_ring_of_256_mib(judge: Judge, kernel: Callable[[str], str]) -> None:
    found = confirmed(judge, kernel("add"), hot_and_cold=True)
    measured = {name: (bool(timing.hot), bool(timing.cold)) for name, timing in found.items()}
    # 32 KiB of inputs would need 8192 sets; 8 MiB of inputs do not fit.
    assert measured == {"small": (True, False), "middle": (True, True), "large": (False, True)}
    for blocks in (found["small"].hot, found["middle"].hot, found["middle"].cold, found["large"].cold):
        assert [block.process for block in blocks] == [0, 1, 2], "a fresh process each"
        assert all(block.candidate_ms > 0 and block.eager_ms and block.compiled_ms is None for block in blocks)
    again = confirmed(judge, kernel("add"), hot_and_cold=False)
    assert not any(timing.hot or timing.cold for timing in again.values()), "only where it is asked for"


def test_a_kernel_that_could_keep_an_answer_is_not_timed_hot(judge: Judge) -> None:
    found = confirmed(judge, COUNTS, hot_and_cold=True)
    assert not any(timing.hot or timing.cold for timing in found.values())


def test_a_wrong_kernel_does_not_get_there(judge: Judge, kernel: Callable[[str], str]) -> None:
    found = judge.confirm(Candidate("cpp", kernel("half")), {}, processes=1, hot_and_cold=True)
    assert found.status is Status.WRONG
    assert "hot_cold" not in found.seconds


@pytest.fixture
def material(task_file: Path) -> Iterator[Material]:
    with ReferenceWorker(load_task(str(task_file))) as worker:
        signature = worker.describe()["small"]
        made = make_material(worker, "small", signature, np.random.default_rng(0), l2_total_bytes=1 << 10)
        yield made
        made.close()


def test_a_ring_is_lengthened_by_copies_elsewhere_in_memory(material: Material) -> None:
    lengthen_ring(material, 8)
    lengthen_ring(material, 5)
    assert (len(material.ring), len(material.sets)) == (3, 8)
    for index, inputs in enumerate(material.sets):
        drawn = material.ring[index % 3]
        assert all(np.array_equal(a, b) for a, b in zip(inputs.arrays(), drawn.arrays(), strict=True))
        assert material.answer(index) is material.answer(index % 3)
    material.copies[0].array(0)[...] = 0
    assert material.ring[0].array(0).any()


def test_hot_and_cold_batches_are_checked(material: Material, builder: Builder, kernel: Callable[[str], str]) -> None:
    lengthen_ring(material, 8)
    with ExitStack() as stack:

        def batches(name: str, sets: int) -> SampledBatches:
            built = builder.build(kernel(name), {"CHUNK": 64} if name == "add" else {}, material.signature)
            assert built.library_path is not None
            runner = stack.enter_context(
                Runner(
                    built.library_path, material.signature, constants=None, sets=material.sets,
                    outputs=material.outputs, threads=1,
                )
            )  # fmt: skip
            return SampledBatches(runner, material, Tolerance(), np.random.default_rng(0), limit_s=3.0, sets=sets)

        for sets in (1, 8):
            for n in (1, 2, 7):
                assert batches("add", sets).batch(n, 0.01) > 0
            with pytest.raises(WrongOutput):
                for _ in range(20):
                    batches("half", sets).batch(5, 0.01)


@pytest.mark.parametrize(
    ("eager_ms", "slow"), [((2.0, 2.0, 2.0), False), ((0.95, 0.95, 0.95), False), ((0.8, 0.85, 3.0), True)]
)
def test_slow_hot_is_a_median_over_ten_percent_below_the_baseline(eager_ms: tuple[float, ...], slow: bool) -> None:
    warm = (Block(0, 1.0, eager_ms=0.1),)
    hot = tuple(Block(process, 1.0, eager_ms=ms, compiled_ms=0.1) for process, ms in enumerate(eager_ms))
    assert is_slow_hot(WorkloadTiming("default", "eager", warm, hot=hot)) == slow
    assert not is_slow_hot(WorkloadTiming("default", "eager", warm, cold=hot))
