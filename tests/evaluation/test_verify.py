from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from evoforge.core import Candidate, Status, Target
from evoforge.evaluation.judge import Judge
from evoforge.evaluation.material import Known
from evoforge.evaluation.runner import KernelFault, Runner
from evoforge.evaluation.tasks import load_task
from evoforge.evaluation.verify import FreshBatches, SampledBatches, WrongOutput

TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1

def get_inputs():
    return [torch.rand(64, 256)]

def get_init_inputs():
    return []
"""
PLUS_ONE = """
#include "evoforge.h"
{before}
extern "C" int evo_run(const evo_call* call) {{
    const float* x = EVO_IN(float, 0);
    float* out = EVO_OUT(float, 0);
    {first}
    for (int64_t i = 0; i < EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1); i++) out[i] = {value} + 1.0f;
    return 0;
}}
"""
ONLY_OVER_POISON = PLUS_ONE.format(
    before="", value="(careful || x[i] < 1.0f ? x[i] : 1.0f)",
    first="int careful = 1; for (int i = 0; i < 64; i++) careful &= out[i * 256] != out[i * 256];",
)  # fmt: skip
BELOW_ONE = PLUS_ONE.format(before="", value="(x[i] < 1.0f ? x[i] : 1.0f)", first="")
COUNTS = PLUS_ONE.format(
    before="static int64_t calls;", value="x[i]",
    first="if (++calls > 2 && calls != {last} - 1 && calls != {last}) return 0;",
)  # fmt: skip

HONEST_AT_THE_ENDS = PLUS_ONE.format(
    before="static int64_t calls;", value="x[i]",
    first="int poisoned = 0; for (int i = 0; i < 256; i++) poisoned |= out[i] > 1e30f;"
    "if (poisoned && calls > 2) calls = 0; if (++calls > 2 && calls < 90) return 0;",
)  # fmt: skip

TURNS = PLUS_ONE.format(
    before="", value="x[i]",
    first="for (volatile int64_t turn = 0; turn < {turns}; turn = turn + 1) {}",
)  # fmt: skip


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory, one_thread: Target) -> Iterator[Judge]:
    path = tmp_path_factory.mktemp("task") / "plus_one.py"
    path.write_text(TASK)
    with Judge(load_task(str(path)), one_thread, seed=1) as opened:
        opened.open()
        yield opened


def test_a_kernel_that_is_careful_over_poison_only_is_wrong(judge: Judge) -> None:
    """The task's own numbers are below 1; those of extremes are not."""
    found = judge.confirm(Candidate("cpp", ONLY_OVER_POISON), {}, processes=1)
    assert found.status is Status.WRONG
    assert "family" in found.reason


@pytest.mark.parametrize("kind", [SampledBatches, FreshBatches])
def test_what_is_right_for_the_tasks_own_inputs_only_is_met_where_it_is_timed(
    judge: Judge, kind: type[SampledBatches] | type[FreshBatches]
) -> None:
    (material,), stand = judge._stand.materials.values(), judge._stand
    strangers = [one for one in stand.extremes(material.name) if one.family == "offset"]
    built = stand.builder.build(BELOW_ONE, {}, material.signature)
    with ExitStack() as stack:

        def start() -> Runner:
            return stack.enter_context(stand.timed_runner(built, material, strangers=strangers))

        def batches(strangers: list[Known]) -> SampledBatches | FreshBatches:
            tolerance, rng = judge.task.tolerance, stand.rng
            if kind is FreshBatches:
                return FreshBatches(start, material, tolerance, rng, limit_s=1.0, strangers=strangers)
            return SampledBatches(start(), material, tolerance, rng, limit_s=1.0, strangers=strangers)

        alone, among = batches([]), batches(strangers)
        for _ in range(8):
            alone.batch(min(alone.most, 4), 1e-3)
        with pytest.raises(WrongOutput, match="family 'offset'"):
            for _ in range(128):
                among.batch(min(among.most, 4), 1e-3)


def test_who_counts_calls_does_not_know_which_are_looked_at(judge: Judge) -> None:
    """A process warms up on half of the ring and a batch of `most` takes the rest: who counts knows its end."""
    (material,), stand = judge._stand.materials.values(), judge._stand
    source = COUNTS.replace("{last}", str(len(material.ring)))
    built = stand.builder.build(source, {}, material.signature)
    assert built.stateful
    batches = FreshBatches(
        lambda: stand.timed_runner(built, material), material, judge.task.tolerance, stand.rng, limit_s=1.0
    )
    with pytest.raises(WrongOutput, match="timed batch"):
        for _ in range(8):
            batches.batch(batches.most, 1e-3)


def test_who_is_honest_where_a_batch_may_end_is_met(judge: Judge) -> None:
    """A long batch takes a known time, so that who counts knows which calls are never the last."""
    (material,), stand = judge._stand.materials.values(), judge._stand
    built = stand.builder.build(HONEST_AT_THE_ENDS, {}, material.signature)
    with stand.timed_runner(built, material) as runner:
        batches = SampledBatches(runner, material, judge.task.tolerance, stand.rng, limit_s=1.0)
        with pytest.raises(WrongOutput, match="timed batch"):
            for _ in range(256):
                batches.batch(100, 1e-3)


def test_a_process_does_not_see_whether_it_is_verified_or_timed(judge: Judge) -> None:
    (material,), stand = judge._stand.materials.values(), judge._stand
    strangers = list(stand.extremes(material.name))[:2]
    built = stand.builder.build(BELOW_ONE, {}, material.signature)
    known = [material.pool[0].inputs, *(one.inputs for one in strangers)]

    def mapped(runner: Runner) -> int:
        with runner:
            return Path(f"/proc/{runner.pid}/maps").read_text().count("memfd:")

    verified = mapped(stand.runner(built, material, known))
    assert verified >= len(material.ring) + len(material.spare)
    assert mapped(stand.runner(built, material, known[:1])) == verified
    assert mapped(stand.timed_runner(built, material, strangers=strangers)) == verified
    assert mapped(stand.timed_runner(built, material)) == verified


def test_what_is_printed_where_the_ring_is_read_is_not_told(judge: Judge) -> None:
    (material,), stand = judge._stand.materials.values(), judge._stand
    says = PLUS_ONE.format(
        before="#include <stdio.h>\n#include <stdlib.h>", value="x[i]", first='fputs("0.123", stderr), abort();'
    )
    built = stand.builder.build(says, {}, material.signature)
    reasons = []
    for runner in (stand.runner(built, material, material.ring), stand.timed_runner(built, material)):
        with runner, pytest.raises(KernelFault) as caught:
            runner.run(1, 0)
        reasons.append(caught.value.reason)
    assert ["0.123" in reason for reason in reasons] == [True, False]


@pytest.mark.parametrize(("turns", "whole", "calls"), [(3 * 10**8, False, 3), (10**7, True, None)])
def test_a_slow_kernel_takes_a_few_calls_in_places_of_their_own(
    judge: Judge, turns: int, whole: bool, calls: int | None
) -> None:
    (material,), stand = judge._stand.materials.values(), judge._stand
    judge.wait_compiled(0.0)
    built = stand.builder.build(TURNS.replace("{turns}", str(turns)), {}, material.signature)
    for written in material.spare:
        written.array(0)[...] = 7.0
    with stand.timed_runner(built, material) as runner:
        assert not any((written.array(0) == 7.0).any() for written in material.spare), "before the kernel is loaded"
        batches = SampledBatches(runner, material, judge.task.tolerance, stand.rng, limit_s=10.0, whole=whole)
        for written in material.spare:
            written.array(0)[...] = 7.0
        found, again = batches.brief(), batches.brief(again=True)
    assert (found.calls, found.cut) == (calls or len(material.ring) - 1, calls is not None)
    assert (again.calls, again.cut) == (found.calls, found.cut)
    assert not any((written.array(0) == 7.0).any() for written in material.spare), (
        "what an earlier process wrote is gone"
    )
