from __future__ import annotations

import contextlib
import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from evoforge.core import Candidate, Evaluation, Kind, Status, Target, Task, WorkloadTiming
from evoforge.errors import UsageError
from evoforge.evaluation.forking import WORKER_NAME
from evoforge.evaluation.judge import Judge
from evoforge.evaluation.runner import Runner
from evoforge.evaluation.tasks import load_task

ADD = """
import torch
M = 37
N = 61
WORKLOADS = [{"name": "ragged"}, {"name": "wide", "M": 8, "N": 1024}]

class Model(torch.nn.Module):
    def forward(self, a, b):
        return a + b

def get_inputs():
    return [torch.randn(M, N), torch.randn(M, N)]

def get_init_inputs():
    return []
"""
SCALE = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(7))

    def forward(self, x):
        return x * 2 * self.weight

def get_inputs():
    return [torch.randn(5, 7)]

def get_init_inputs():
    return []
"""


PLAIN = """
#include "evoforge.h"
extern "C" int evo_run(const evo_call* call) {
    for (int64_t i = 0; i < EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1); i++)
        EVO_OUT(float, 0)[i] = EVO_IN(float, 0)[i] * 2.0f * EVO_CST(float, 0)[i % EVO_SIZE(in0, 1)];
    return 0;
}
"""
TIMED = ("eager", "frozen")


def candidate_of(source: str) -> Candidate:
    return Candidate("cpp", source)


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory, one_thread: Target) -> Iterator[Judge]:
    path = tmp_path_factory.mktemp("task") / "add.py"
    path.write_text(ADD)
    with Judge(load_task(str(path)), one_thread, seed=1, call_limit_s=0.5) as opened:
        opened.open()
        yield opened


@pytest.fixture
def scale(tmp_path: Path) -> Task:
    path = tmp_path / "scale.py"
    path.write_text(SCALE)
    return load_task(str(path))


def without_noise(attempt: Callable[[], Evaluation]) -> Evaluation:
    """A busy machine may make honest times look suspect; three times in a row it does not."""
    for _ in range(3):
        found = attempt()
        if found.status is not Status.TIMING_SUSPECT:
            break
    return found


def processes_of(timing: WorkloadTiming) -> int:
    """How many processes it was timed in, two blocks each: more than were asked for, on a busy machine."""
    numbers = [block.process for block in timing.blocks]
    assert numbers == [number for number in sorted(set(numbers)) for _ in range(2)]
    return len(set(numbers))


def test_a_correct_kernel_is_timed_on_every_workload(judge: Judge, kernel: Callable[[str], str]) -> None:
    found = without_noise(lambda: judge.trial(candidate_of(kernel("add")), {"CHUNK": 64}, wanted_facts=False))
    assert found.status is Status.CORRECT, found.reason
    assert [timing.workload for timing in found.timings] == ["ragged", "wide"]
    for timing in found.timings:
        assert len(timing.blocks) == 4
        assert all(block.candidate_ms > 0 and block.eager_ms and block.compiled_ms is None for block in timing.blocks)
    assert found.params == {"CHUNK": 64}
    assert found.objective is not None
    assert found.max_error is not None
    assert found.max_error < 1e-6
    assert found.seconds.keys() == {"build", "verify", "time"}
    assert found.sandbox == "basic"
    assert found.kind is Kind.TRIAL
    assert found.flags == ()


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("wrong", Status.WRONG, "expected"),
        ("half", Status.WRONG, "never written"),
        ("reads_slack", Status.WRONG, "out0[36, 60]"),
        ("stale_workspace", Status.WRONG, "out0"),
        ("syntax_error", Status.BUILD_ERROR, "kernel.cpp:3"),
        ("no_entry", Status.LOAD_ERROR, "evo_run"),
        ("constructor_exits", Status.SCREENED, "loaded"),
        ("exits", Status.SCREENED, "_exit"),
        ("endless_loop", Status.TIMEOUT, "time"),
        ("segfault", Status.CRASH, "0x10"),
        ("aborts", Status.CRASH, "Abort"),
        ("throws", Status.CRASH, "int"),
        ("stack_overflow", Status.CRASH, "stack"),
        ("reports_error", Status.CRASH, "2"),
        ("declines", Status.UNSUPPORTED, "domain"),
        ("past_end", Status.OUT_OF_BOUNDS, "past the end of out0"),
        ("before_start", Status.OUT_OF_BOUNDS, "before the start of out0"),
        ("slack_past_end", Status.OUT_OF_BOUNDS, "past the end of out0"),
        ("slack_before_start", Status.OUT_OF_BOUNDS, "before the start of out0"),
        ("reads_past_end", Status.OUT_OF_BOUNDS, "in0"),
        ("writes_input", Status.VIOLATION, "in0"),
        ("flush_to_zero", Status.VIOLATION, "mode"),
        ("memory_blow_up", Status.OUT_OF_MEMORY, "alloc"),
    ],
)
def test_a_bad_kernel_gets_its_status_and_a_reason(
    judge: Judge, kernel: Callable[[str], str], name: str, status: Status, said: str
) -> None:
    found = judge.trial(candidate_of(kernel(name)), {})
    assert found.status is status, found.reason
    assert said in found.reason
    assert found.timings == ()
    assert found.objective is None


def test_the_judge_outlives_them_all(judge: Judge, kernel: Callable[[str], str]) -> None:
    found = judge.verify(candidate_of(kernel("workspace")), {})
    assert found.status is Status.UNMEASURED
    assert found.timings == ()


def test_parameters_outside_the_declaration_are_infeasible(judge: Judge, kernel: Callable[[str], str]) -> None:
    assert judge.trial(candidate_of(kernel("add")), {"CHUNK": 5}).status is Status.INFEASIBLE
    assert judge.trial(candidate_of(kernel("add")), {"OTHER": 4}).status is Status.INFEASIBLE
    assert judge.trial(candidate_of("// evoforge: param\n"), {}).status is Status.INFEASIBLE


def test_a_kernel_that_is_right_once_and_then_does_nothing_is_caught(judge: Judge) -> None:
    lazy = """
#include "evoforge.h"
extern "C" int evo_run(const evo_call* call) {
    static int calls;
    if (calls++ > 8) return 0;
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    for (int64_t i = 0; i < n; i++) EVO_OUT(float, 0)[i] = EVO_IN(float, 0)[i] + EVO_IN(float, 1)[i];
    return 0;
}
"""
    found = judge.trial(candidate_of(lazy), {})
    assert found.status is Status.WRONG
    assert "never written" in found.reason


def test_too_fast_for_physics_is_quarantined(judge: Judge, kernel: Callable[[str], str]) -> None:
    judge.set_bounds({"ragged": 1e6, "wide": None})
    try:
        found = without_noise(lambda: judge.trial(candidate_of(kernel("add")), {}, wanted_facts=False))
    finally:
        judge.set_bounds({})
    assert found.status is Status.QUARANTINED
    assert "ragged" in found.reason
    assert found.timings


def test_a_kernel_far_below_what_it_must_beat_is_pruned(judge: Judge, kernel: Callable[[str], str]) -> None:
    found = judge.trial(candidate_of(kernel("add")), {}, prune_below=30.0)
    assert found.status is Status.PRUNED
    assert found.timings
    assert not found.facts
    kept = without_noise(lambda: judge.trial(candidate_of(kernel("add")), {}, prune_below=-30.0, wanted_facts=False))
    assert kept.status is Status.CORRECT


def test_facts_come_with_a_trial(judge: Judge, kernel: Callable[[str], str]) -> None:
    found = without_noise(lambda: judge.trial(candidate_of(kernel("add")), {}))
    assert found.status is Status.CORRECT
    assert found.facts
    assert "facts" in found.seconds


def test_baselines_are_chosen_and_a_confirmation_uses_fresh_processes(
    judge: Judge, kernel: Callable[[str], str]
) -> None:
    assert judge.wait_compiled(300.0) == judge.compiled_state() == "ready"
    chosen = judge.choose_baseline("best", blocks=3)
    for name, side in chosen.items():
        times = judge.baseline_ms[name]
        assert times[side] == min(value for value in times.values() if value is not None)
        assert len(times) == 2
    assert judge.choose_baseline("eager", blocks=1) == {"ragged": "eager", "wide": "eager"}
    assert 0 <= judge.aa_margin() < float("inf")
    found = without_noise(
        lambda: judge.confirm(
            candidate_of(kernel("workspace")), {}, processes=3, sides=("eager", "compiled"), kind=Kind.BENCH
        )
    )
    assert found.status is Status.CORRECT, found.reason
    assert found.kind is Kind.BENCH
    for timing in found.timings:
        assert processes_of(timing) >= 3
        assert all(block.eager_ms and block.compiled_ms for block in timing.blocks)
    assert judge.confirm(candidate_of(kernel("wrong")), {}).status is Status.WRONG
    with pytest.raises(UsageError, match="best, eager or compiled"):
        judge.choose_baseline("fastest")


def test_a_bench_takes_turns_and_says_at_once_what_failed(judge: Judge, kernel: Callable[[str], str]) -> None:
    kernels = [(candidate_of(kernel(name)), {}) for name in ("add", "wrong", "workspace")]
    rounds = [dict(verdicts) for verdicts in judge.bench(kernels)]
    assert {at: one.status for at, one in rounds[0].items()} == {1: Status.WRONG}
    assert set().union(*rounds[1:]) == {0, 2}
    for found in rounds[-1].values():
        assert found.kind is Kind.BENCH
        if found.status is not Status.TIMING_SUSPECT:  # a busy machine
            assert all(processes_of(one) >= 5 for one in found.timings)


def test_a_race_takes_turns_and_says_who_failed(judge: Judge, kernel: Callable[[str], str]) -> None:
    kernels = [(candidate_of(kernel(name)), {}) for name in ("add", "wrong", "add", "workspace")]
    found = judge.race(kernels, limit_s=1.0)
    assert [one.kind for one in found] == [Kind.RACE] * 4
    assert found[1].status is Status.WRONG
    timed = [one for one in found if one.status is Status.CORRECT]  # not all of them, on a busy machine
    assert timed and all(one.log2_ms() and one.objective is None for one in timed)


POSITIVE = """
import torch
MODE = "relu"
WORKLOADS = [{"name": "relu"}, {"name": "prod", "MODE": "prod"}]

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) if MODE == "relu" else torch.cumprod(x, 1)

def get_inputs():
    return [torch.rand(16, 1024)]
"""
COPIES = """
#include "evoforge.h"
extern "C" int evo_run(const evo_call* call) {
    constexpr int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    for (int64_t i = 0; i < n; i++) EVO_OUT(float, 0)[i] = EVO_IN(float, 0)[i];
    return 0;
}
"""
STOPS = """
#include "evoforge.h"
extern "C" int evo_run(const evo_call* call) {
    constexpr int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
    for (int64_t i = 0; i < rows; i++) {
        float product = 1.0f;
        for (int64_t j = 0; j < n; j++)
            EVO_OUT(float, 0)[i * n + j] = product *= j < LAST ? EVO_IN(float, 0)[i * n + j] : 0.0f;
    }
    return 0;
}
"""


@pytest.mark.parametrize(
    ("mode", "source", "status"),
    [
        ("relu", COPIES, Status.WRONG),
        ("prod", STOPS.replace("LAST", "512"), Status.WRONG),
        ("prod", STOPS.replace("LAST", "n"), Status.UNMEASURED),
    ],
)
def test_what_is_right_for_the_tasks_own_numbers_only_is_met(
    tmp_path: Path, one_thread: Target, mode: str, source: str, status: Status
) -> None:
    """In [0, 1) rectified numbers are themselves, and their products are zero before long: such tasks are fit."""
    path = tmp_path / "positive.py"
    path.write_text(POSITIVE)
    with Judge(load_task(str(path), {"MODE": mode}), one_thread, seed=1, call_limit_s=0.5) as judge:
        judge.open()
        assert judge.admit().fit
        assert judge.verify(candidate_of(source), {}).status is Status.UNMEASURED
        assert judge.verify(candidate_of(source), {}, unseen=True).status is status


def test_builds_are_for_every_workload(judge: Judge, kernel: Callable[[str], str]) -> None:
    built = judge.build(candidate_of(kernel("add")), {"CHUNK": 4})
    assert built.keys() == {"ragged", "wide"}
    assert len({item.library_path for item in built.values()}) == 2


def test_weights_reach_the_kernel_and_packing_is_flagged(
    one_thread: Target, kernel: Callable[[str], str], scale: Task
) -> None:
    with Judge(scale, one_thread, seed=3) as judge:
        judge.open()
        found = judge.verify(candidate_of(kernel("packed")), {})
        assert found.status is Status.UNMEASURED, found.reason
        assert found.flags == ("prepacked",)
        assert judge.verify(candidate_of(kernel("repacks")), {}).status is Status.VIOLATION
        assert judge.busy_seconds > 0


def test_a_kernel_that_packs_is_held_to_a_torch_that_freezes(
    one_thread: Target, kernel: Callable[[str], str], scale: Task
) -> None:
    with Judge(scale, one_thread, seed=3) as judge:
        judge.open()
        found = without_noise(lambda: judge.trial(candidate_of(kernel("packed")), {}, wanted_facts=False))
        assert found.status is Status.CORRECT, found.reason
        (timing,) = found.timings
        times = {side: statistics.median(b.baseline_ms(side) or 0.0 for b in timing.blocks) for side in TIMED}
        assert all(times.values()), "beside both in every block"
        assert timing.baseline == min(times, key=times.__getitem__)
        assert found.seconds["frozen"] > 0
        plain = without_noise(lambda: judge.trial(candidate_of(PLAIN), {}, wanted_facts=False))
        assert plain.status is Status.CORRECT, plain.reason
        assert all(block.frozen_ms is None for timing in plain.timings for block in timing.blocks)
        assert "frozen" not in plain.seconds


def test_nothing_is_left_when_the_judge_closes(one_thread: Target, scale: Task) -> None:
    me, before = os.getpid(), workers()
    with pytest.raises(KeyboardInterrupt), Judge(scale, one_thread, seed=3) as judge:
        judge.open()
        assert workers() - before
        raise KeyboardInterrupt
    deadline = time.monotonic() + 5
    while workers() - before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not workers() - before
    assert os.getpid() == me


def workers() -> set[psutil.Process]:
    """What was forked for a judge; the servers that they are forked from stay."""
    found = set()
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if child.name() == WORKER_NAME and child.status() != psutil.STATUS_ZOMBIE:
                found.add(child)
    return found


def test_dead_workers_are_a_harness_error_and_come_back(
    one_thread: Target, tmp_path: Path, kernel: Callable[[str], str]
) -> None:
    others = workers()
    path = tmp_path / "add.py"
    path.write_text(ADD)
    candidate = candidate_of(kernel("workspace"))
    with Judge(load_task(str(path)), one_thread, seed=0) as fresh:
        fresh.open()
        for one in workers() - others:
            with contextlib.suppress(psutil.NoSuchProcess):  # one that was about to end anyway
                one.kill()
        assert fresh.trial(candidate, {}, wanted_facts=False).status is Status.HARNESS_ERROR
        assert without_noise(lambda: fresh.trial(candidate, {}, wanted_facts=False)).status is Status.CORRECT
        assert fresh.confirm(candidate, {}, processes=1).status is Status.HARNESS_ERROR
        assert without_noise(lambda: fresh.confirm(candidate, {}, processes=1)).status is Status.CORRECT


def test_an_unknown_sandbox_is_refused(one_thread: Target, scale: Task) -> None:
    with pytest.raises(UsageError, match="strict"):
        Judge(scale, one_thread, seed=0, sandbox="total")


def test_a_kernel_whose_first_call_alone_is_slow_is_timed(judge: Judge, kernel: Callable[[str], str]) -> None:
    found = judge.trial(candidate_of(kernel("slow_start")), {}, prune_below=0.0, wanted_facts=False)
    assert "first right call" not in found.reason and found.latency_ms is not None and found.latency_ms < 10


def test_building_ahead_is_silent_about_declarations_that_cannot_be_read(
    judge: Judge, kernel: Callable[[str], str]
) -> None:
    odd = candidate_of("// evoforge: param T = 1 in {1, many}\n" + kernel("add"))
    judge.build_ahead(odd, {})
    assert judge.trial(odd, {}).status is Status.INFEASIBLE


def test_a_kernel_that_waited_for_processors_is_not_slow_for_it(
    judge: Judge, kernel: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = itertools.count(0.0, 60.0)  # its threads wait for a minute in every call
    monkeypatch.setattr(Runner, "waited_s", property(lambda runner: next(readings)))
    found = judge.trial(candidate_of(kernel("slow")), {}, prune_below=0.0)
    assert "first right call" not in found.reason, "it was timed beside the baseline"


def test_a_hopelessly_slow_kernel_costs_two_calls(judge: Judge, kernel: Callable[[str], str]) -> None:
    found = judge.trial(candidate_of(kernel("slow")), {}, prune_below=0.0)
    assert found.status is Status.PRUNED
    assert "first right call" in found.reason
    assert found.latency_ms is not None
    assert found.latency_ms > 10
    assert not found.facts
    assert judge.trial(candidate_of(kernel("slow")), {}, wanted_facts=False).status is Status.CORRECT
