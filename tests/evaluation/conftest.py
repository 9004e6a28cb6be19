"""Shared by the evaluation tests: a build cache of the session's own, and a small add task's tensors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from evoforge.core import Signature, Target, TensorSpec
from evoforge.evaluation.build import Builder
from evoforge.evaluation.shared import SharedTensors
from evoforge.evaluation.targets import resolve_target

KERNELS = Path(__file__).parent / "kernels"
SHAPE = (37, 61)  # 9028 bytes: 60 bytes of slack behind the last element


@pytest.fixture(scope="session", autouse=True)
def _session_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    if "EVOFORGE_CACHE" in os.environ:
        yield
        return
    os.environ["EVOFORGE_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    del os.environ["EVOFORGE_CACHE"]


@pytest.fixture(scope="session")
def one_thread() -> Target:
    return resolve_target("cpu:threads=1")


@pytest.fixture(scope="session")
def builder(one_thread: Target) -> Builder:
    return Builder(one_thread)


@pytest.fixture(scope="session")
def kernel() -> Callable[[str], str]:
    return lambda name: (KERNELS / f"{name}.cpp").read_text()


@pytest.fixture(scope="session")
def add_signature() -> Signature:
    def spec(name: str) -> TensorSpec:
        return TensorSpec(name, SHAPE, (SHAPE[1], 1), "f32")

    return Signature((spec("in0"), spec("in1")), (), (spec("out0"),))


@pytest.fixture
def add_sets(add_signature: Signature) -> Iterator[list[SharedTensors]]:
    rng = np.random.default_rng(0)
    sets = [SharedTensors(add_signature.inputs) for _ in range(3)]
    for inputs in sets:
        for array in inputs.arrays():
            array[...] = rng.standard_normal(array.shape)
    yield sets
    for inputs in sets:
        inputs.close()


@pytest.fixture
def add_outputs(add_signature: Signature) -> Iterator[tuple[SharedTensors, SharedTensors]]:
    pair = (SharedTensors(add_signature.outputs), SharedTensors(add_signature.outputs))
    yield pair
    for outputs in pair:
        outputs.close()
