"""A sample of benchmarks/cells.py: generated kernels lie where their genome says, refactored or not.

On one instruction set with one cache, since some of them lie between two cells on others.
"""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from evoforge.archives import Descriptor
from evoforge.core import ParameterSpace, Strategy
from evoforge.evaluation.build import Builder
from evoforge.evaluation.facts import collect_facts
from evoforge.evaluation.targets import resolve_target
from evoforge.lowering.cost import signature_of
from evoforge.lowering.ir import Graph
from evoforge.lowering.space import ScheduleSpace

SAMPLE = 8


@pytest.fixture(scope="module")
def builder() -> Builder:
    target = resolve_target("cpu:threads=1,isa=x86-64-v3")
    return Builder(replace(target, fingerprint={**target.fingerprint, "l2_bytes": 1 << 20}))


@pytest.fixture(scope="module")
def graph() -> Graph:
    """Residual add and RMSNorm of rows that fill the cache many times over."""
    import torch

    from evoforge.lowering.capture import capture
    from evoforge.lowering.ir import from_json

    class AddNorm(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(2048))

        def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            total = x + residual
            return total * torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight, total

    found = from_json(capture(AddNorm().eval(), [torch.ones(256, 2048), torch.ones(256, 2048)]))
    assert isinstance(found, Graph)
    return found


def describer(graph: Graph, builder: Builder) -> Any:
    signature = signature_of(graph)

    def describe(source: str) -> Any:
        params = ParameterSpace.parse(source).defaults()
        built = builder.build(source, params, signature)
        assert built.object_path is not None, built.reason
        facts = collect_facts(source, params, built, signature, None, builder.target, builder, unfused=graph.unfused)
        return Descriptor().cell(facts)

    return describe


def space_of(graph: Graph, builder: Builder) -> ScheduleSpace:
    target = builder.target
    return ScheduleSpace(
        [graph], l1_bytes=target.l1_bytes, l2_bytes=target.l2_bytes, vector_bytes=target.vector_bytes, threads=2
    )


@pytest.fixture(scope="module")
def described(graph: Graph, builder: Builder) -> Any:
    return describer(graph, builder)


@pytest.fixture(scope="module")
def space(graph: Graph, builder: Builder) -> ScheduleSpace:
    return space_of(graph, builder)


@pytest.fixture(scope="module")
def refactor() -> ModuleType:
    path = Path(__file__).resolve().parents[3] / "benchmarks" / "refactor.py"
    spec = importlib.util.spec_from_file_location("refactor", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_cell_from_facts_is_the_implied_one(space: ScheduleSpace, described: Any) -> None:
    rng = np.random.default_rng(0)
    pairs = []
    for _ in range(SAMPLE):
        genome = space.sample(rng, Strategy())
        pairs.append((space.implied_cell(genome), described(space.render(genome)), genome))
    wrong = [pair for pair in pairs if pair[0] != pair[1]]
    assert len(wrong) <= 1, wrong
    assert len({implied for implied, _, _ in pairs}) > SAMPLE // 3


def test_so_is_that_of_a_contraction(builder: Builder) -> None:
    import torch

    from evoforge.lowering.capture import capture
    from evoforge.lowering.ir import from_json

    class Product(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return torch.relu(a @ b)

    graph = from_json(capture(Product(), [torch.ones(256, 1024), torch.ones(1024, 192)]))
    space, describe = space_of(graph, builder), describer(graph, builder)
    (key,) = [gene for gene in space.genes() if gene.startswith("contract")]
    genomes = [{key: how} for how in ("block", "pack", "both", "deep")]
    assert [space.implied_cell(genome) for genome in genomes] == [describe(space.render(genome)) for genome in genomes]


def test_so_is_that_of_short_rows_slices_and_gathers(builder: Builder) -> None:
    import torch

    from evoforge.lowering.capture import capture
    from evoforge.lowering.ir import from_json

    class Halves(torch.nn.Module):
        """Short rows that are unrolled whole, a tensor of which two nests read a part each, rows by number."""

        def forward(self, x: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.softmax(x[:, :64], -1), torch.relu(x[:, 64:])[rows] * 2

    given = [torch.ones(16384, 128), torch.zeros(16384, dtype=torch.int64)]
    graph = from_json(capture(Halves(), given))
    space, describe = space_of(graph, builder), describer(graph, builder)
    genomes: list[dict[str, str]] = [{}, {"unroll": "many", "rows": "block"}, {"reduction": "chunks"}]
    assert [space.implied_cell(genome) for genome in genomes] == [describe(space.render(genome)) for genome in genomes]


def test_so_is_that_of_windows_bytes_and_lookups(builder: Builder) -> None:
    import torch
    from torch.nn import functional as fn

    from evoforge.lowering.capture import capture
    from evoforge.lowering.ir import from_json

    class Pool(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return fn.max_pool2d(x, 2)

    class Planes(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.permute(0, 2, 1).contiguous().float() / 255 - 0.5

    class Sparse(torch.nn.Module):
        def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
            return x[at].sum(-1)

    cases: list[tuple[torch.nn.Module, list[torch.Tensor]]] = [
        (Pool(), [torch.ones(2, 4, 128, 128)]),
        (Planes(), [torch.ones(8, 8192, 3, dtype=torch.uint8)]),
        (Sparse(), [torch.ones(8192), torch.zeros(2048, 64, dtype=torch.int32)]),
    ]
    for module, given in cases:
        graph = from_json(capture(module, given))
        space, describe = space_of(graph, builder), describer(graph, builder)
        for genome in ({}, {"unroll": "many"}):
            assert space.implied_cell(genome) == describe(space.render(genome)), (type(module), genome)


def test_refactoring_moves_no_generated_kernel(space: ScheduleSpace, described: Any, refactor: ModuleType) -> None:
    rng = np.random.default_rng(1)
    source = space.render({"unroll": "many", "tile": "1", "rows": "block", "prefetch": "ahead"})
    cell = described(source)
    changes = list(refactor.refactored(source, rng))
    assert len(changes) >= 6
    assert {how: described(text) for how, text in changes} == {how: cell for how, _ in changes}
