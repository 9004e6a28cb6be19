"""A target, a builder and a workload for handwritten kernels."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evoforge.core import Signature, TensorSpec
from evoforge.evaluation.build import Builder
from evoforge.evaluation.built import Built
from evoforge.evaluation.facts import collect_facts
from evoforge.evaluation.targets import resolve_target

ROWS, COLUMNS = 96, 4096

FRAME = """#include "evoforge.h"
#include <math.h>
using evo::all;
using evo::load;
using evo::store;
constexpr int64_t V = evo::lanes;
#define ROWS for (int64_t i = 0; i < M; ++i)
#define COLUMNS(step) for (int64_t j = 0; j < N; j += step)
#define AT(p) (p + i * N + j)
#define get(p) load(p, all)
#define put(p, v) store(p, v, all)
%s
extern "C" int64_t evo_workspace(const evo_call* call) { return 16 << 20; }
extern "C" int evo_run(const evo_call* call) {
    const float *x = EVO_IN(float, 0), *z = EVO_IN(float, 1), *w = EVO_CST(float, 0);
    float *y = EVO_OUT(float, 0), *h = EVO_OUT(float, 1), *ws = (float*)call->ws;
    constexpr int64_t M = EVO_SIZE(in0, 0), N = EVO_SIZE(in0, 1);
%s
    return 0;
}
"""


def tensor(name: str, *shape: int) -> TensorSpec:
    steps = [1]
    for size in reversed(shape[1:]):
        steps.insert(0, steps[0] * size)
    return TensorSpec(name, shape, tuple(steps), "f32")


def frame(body: str, before: str = "") -> str:
    return FRAME % (before, body.replace("PARALLEL", "\n#pragma omp parallel for num_threads(call->threads)\n"))


@pytest.fixture(scope="session")
def kernel() -> Callable[..., str]:
    """Makes a kernel of the body of `evo_run`, and of what stands before it."""
    return frame


@pytest.fixture(scope="session")
def signature() -> Signature:
    """Each tensor is 1.5 MiB: more than the simulated cache."""
    big = [tensor(name, ROWS, COLUMNS) for name in ("in0", "in1", "out0", "out1")]
    return Signature((big[0], big[1]), (tensor("cst0", COLUMNS),), (big[2], big[3]))


@pytest.fixture(scope="session")
def builder() -> Builder:
    """For this machine, with a private cache of 1 MiB whatever it has."""
    target = resolve_target("cpu")
    return Builder(replace(target, fingerprint={**target.fingerprint, "l2_bytes": 1 << 20}))


@pytest.fixture(scope="session")
def build(builder: Builder, signature: Signature) -> Callable[..., Built]:
    def make(source: str, **params: int) -> Built:
        built = builder.build(source, params, signature)
        assert built.object_path is not None, built.reason
        return built

    return make


@pytest.fixture(scope="session")
def facts(builder: Builder, signature: Signature, build: Callable[..., Built]) -> Callable[..., dict[str, Any]]:
    """Facts of a kernel, of a task with the results that it names; `unfused` is 2 unless given."""

    def collect(source: str, unfused: int = 2, **params: int) -> dict[str, Any]:
        built = build(source, **params)
        # A kernel of one result is one of a task with one: what is not seen to be written has no cell.
        both = re.search(r"\bh\b", source.partition("*h = ")[2].partition(";")[2]) is not None
        own = signature if both else replace(signature, outputs=signature.outputs[:1])
        return collect_facts(source, params, built, own, None, builder.target, builder, unfused=unfused)

    return collect


@pytest.fixture
def object_of(build: Callable[..., Built]) -> Callable[..., Path]:
    def path(source: str, **params: int) -> Path:
        found = build(source, **params).object_path
        assert found is not None
        return found

    return path
