"""Briefs for tests."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from evoforge.core import Block, Candidate, Evaluation, MetaPrompt, Status, Strategy, WorkloadTiming
from evoforge.prompts import Attempt, Brief, Identity, KernelBrief, TaskBrief

AXES = {
    "tiling": ("none", "one level", "two levels", "three or more"),
    "memory": ("scalar or strided", "contiguous vector", "staged or prefetched", "streaming"),
    "fusion": ("all materialised", "some materialised", "none, inputs read again", "none, read once"),
}
WHO = Identity(
    home="/" + "home/ada", cwd="/srv/jobs/nightly", user="ada", host="gpu17.corp.example", secrets=("k-123456",)
)
KERNEL = """#include "evoforge.h"

int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0);
    const float* a = EVO_IN(float, 0);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; ++i)
        out[i] = 2.f * a[i];
    return 0;
}
"""


def task(**changes: Any) -> TaskBrief:
    plain = TaskBrief(
        source="import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, a):\n        return 2 * a\n",
        workloads={"default": "in0: f32[4096], out0: f32[4096]"},
        tolerance="as exact as float32 arithmetic allows",
        precision="ieee",
        language="cpp",
        contract="Define evo_run.",
        baseline_ms={"default": {"eager": 0.5, "compiled": 0.25}},
        bounds_ms={"default": 0.1},
        target_facts={"cores": "2", "isa": "avx512f avx512_vnni amx_bf16"},
    )
    return replace(plain, **changes)


def kernel(source: str = KERNEL, *, status: Status = Status.CORRECT, reason: str = "", **rest: Any) -> KernelBrief:
    timed = status is Status.CORRECT
    timings = (WorkloadTiming("default", "compiled", (Block(0, 0.125, 0.5, 0.25),), bound_ms=0.1),) if timed else ()
    facts = {
        "object": {
            "depth": 2,
            "vectors_per_trip": 4,
            "accumulators": 2,
            "stream_in_loops": True,
            "bytes": {"stream": 3},
        },
        "trace": {"tensors": {"in0": {"lines": 10, "read_misses": 15, "write_misses": 0}}},
    }
    evaluation = Evaluation("c", {"TILE": 8}, "t", "cpu", status, reason=reason, timings=timings, facts=facts)
    rest.setdefault("cell", (1, 1, 3))
    return KernelBrief(Candidate("cpp", source), evaluation, **rest)


def brief(operator: str = "improve", **changes: Any) -> Brief:
    parents = {"invent": 0, "cross": 2}.get(operator, 1)
    plain: dict[str, Any] = {
        "operator": operator,
        "task": task(),
        "parents": tuple(kernel(KERNEL.replace("2.f", f"{2 + i}.f")) for i in range(parents)),
        "target_cell": (1, 3, 3) if operator == "aim" else None,
        "attempts": (Attempt("improve", "fewer stores", "WRONG", None, None, "first wrong index 3"),),
        "axes": AXES,
    }
    return Brief(**{**plain, **changes})


def meta_prompt(name: str = "plain", version: int = 1, **sections: str) -> MetaPrompt:
    texts = {"Philosophy": "Count bytes.", "Strategies": "- Stream.", "Pitfalls": "- Tails.", "Analysis": "Compare."}
    return MetaPrompt(
        name, version, "cpp", Strategy({"aim": 2.0}, {"memory=3": 1.5}, {"unroll=many": 2.0}), {**texts, **sections}
    )


@pytest.fixture(scope="session")
def make() -> SimpleNamespace:
    """The builders above, and what they share."""
    return SimpleNamespace(
        brief=brief, kernel=kernel, meta_prompt=meta_prompt, task=task, AXES=AXES, KERNEL=KERNEL, WHO=WHO
    )
