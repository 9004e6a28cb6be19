"""The space of schedules: genomes, their changes, aiming at cells, refusals."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from evoforge.core import ParameterSpace, Strategy
from evoforge.errors import UnsupportedError, UsageError
from evoforge.lowering import planner
from evoforge.lowering.capture import capture_graph
from evoforge.lowering.index import axis
from evoforge.lowering.ir import Axis, Expr, Graph, Load, Op, Stage, Tensor
from evoforge.lowering.regions import regions
from evoforge.lowering.space import ScheduleSpace

PLAIN = Strategy()


class AddNorm(nn.Module):
    def __init__(self, n: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))

    def forward(self, x: torch.Tensor, r: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = x + r
        return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight, h


class Attention(nn.Module):
    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)


class Products(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


class Unrolled(nn.Module):
    """A recurrence of 40 steps, each of which reads the one before it twice."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(40):
            x = torch.sigmoid(x) * torch.tanh(x)
        return x


class Stepped(nn.Module):
    """A recurrence whose states are read elsewhere, and stacked."""

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        found = []
        for t in range(len(x)):
            h = torch.tanh(h @ x[t]) + h.flip(0)
            found.append(h)
        return torch.stack(found)


class ScaledByUnrolled(Unrolled):
    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return x * super().forward(scale)


class Flipped(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flip(2) + 1


def space_of(model: nn.Module, *shapes: Sequence[tuple[int, ...]], **options: Any) -> ScheduleSpace:
    graphs = [capture_graph(model.eval(), [torch.zeros(shape) for shape in row]) for row in shapes]
    chosen = {"l1_bytes": 48 << 10, "l2_bytes": 1 << 20, "vector_bytes": 64, "threads": 2} | options
    return ScheduleSpace(graphs, **chosen)


@pytest.fixture(scope="module")
def add_norm() -> ScheduleSpace:
    return space_of(AddNorm(4096), [(512, 4096), (512, 4096)])


def test_a_genome_survives_json_and_always_gives_the_same_source(add_norm: ScheduleSpace) -> None:
    rng = np.random.default_rng(0)
    again = space_of(AddNorm(4096), [(512, 4096), (512, 4096)])
    for _ in range(10):
        genome = add_norm.sample(rng, PLAIN)
        stored = json.loads(json.dumps(genome))
        assert stored == genome
        assert again.render(stored) == add_norm.render(genome)


def test_every_source_declares_readable_parameters_and_is_short(add_norm: ScheduleSpace) -> None:
    rng = np.random.default_rng(1)
    for _ in range(40):
        source = add_norm.render(add_norm.sample(rng, PLAIN))
        space = ParameterSpace.parse(source)
        assert space.feasible(space.defaults())
        assert len(source.splitlines()) <= 125
        assert max(len(line) for line in source.splitlines()) <= 160


def test_the_seed_decides_what_is_sampled(add_norm: ScheduleSpace) -> None:
    draws = [[add_norm.sample(np.random.default_rng(seed), PLAIN) for _ in range(3)] for seed in (3, 3, 4)]
    assert draws[0] == draws[1] != draws[2]


def test_mutation_and_crossing_give_other_kernels(add_norm: ScheduleSpace) -> None:
    rng = np.random.default_rng(2)
    genes = add_norm.genes()
    for _ in range(10):
        a, b = add_norm.sample(rng, PLAIN), add_norm.sample(rng, PLAIN)
        mutant, child = add_norm.mutate(a, rng, PLAIN), add_norm.cross(a, b, rng, PLAIN)
        assert add_norm.render(mutant) != add_norm.render(a)
        assert add_norm.render(child) not in (add_norm.render(a), add_norm.render(b))
        assert all(mutant[key] in genes[key] for key in mutant) and all(child[key] in genes[key] for key in child)


def kernel(source: str) -> str:
    """A source without what it says about itself."""
    return "\n".join(line for line in source.splitlines() if "//" not in line or "evoforge:" in line)


def test_changes_that_are_void_are_none() -> None:
    """In a small product most decisions have no effect, but the source names them."""
    space, rng = space_of(nn.Linear(48, 64), [(6, 48)]), np.random.default_rng(3)
    a, b = space.sample(rng, PLAIN), space.sample(rng, PLAIN)
    for _ in range(20):
        mutant, child = space.mutate(a, rng, PLAIN), space.cross(a, b, rng, PLAIN)
        assert kernel(space.render(mutant)) != kernel(space.render(a))
        assert kernel(space.render(child)) not in (kernel(space.render(a)), kernel(space.render(b)))
        a, b = mutant, space.sample(rng, PLAIN)
    found = space.textbook()
    assert len({kernel(space.render(genome)) for genome in found}) == len(found)


def test_climbing_ends_where_no_single_decision_is_better(add_norm: ScheduleSpace) -> None:
    rng = np.random.default_rng(2)
    for _ in range(5):
        worth = {(key, value): rng.normal() for key, values in add_norm.genes().items() for value in values}

        def score(genome: Mapping[str, Any], worth: Mapping[tuple[str, str], float] = worth) -> float:
            return sum(worth[key, genome.get(key, values[0])] for key, values in add_norm.genes().items())

        def scores(genomes: Sequence[Mapping[str, Any]], score: Any = score) -> np.ndarray[Any, np.dtype[np.float64]]:
            return np.array([score(genome) for genome in genomes])

        top = add_norm.climb(add_norm.sample(rng, PLAIN), scores, rng)
        assert top == add_norm.climb(top, scores, rng)
        assert all(
            score({**top, key: value}) <= score(top) for key, values in add_norm.genes().items() for value in values
        )


def test_priors_weigh_decisions(add_norm: ScheduleSpace) -> None:
    rng = np.random.default_rng(3)
    only = Strategy(priors={"stream=plain": 0, "prefetch=none": 0, "vector=scalar": 0, "tile=2": 1000})
    for _ in range(10):
        genome = add_norm.sample(rng, only)
        assert genome["stream:out0"] == genome["stream:out1"] == "stream"
        assert genome["prefetch"] != "none" and "vector" not in genome
    assert sum(add_norm.sample(rng, only).get("tile") == "2" for _ in range(20)) >= 18


def test_stress_makes_cells_more_likely(add_norm: ScheduleSpace) -> None:
    rng = np.random.default_rng(4)
    stressed = Strategy(stress={f"memory={level}": 0.0 for level in (0, 1, 2)})
    hit = sum(add_norm.implied_cell(add_norm.sample(rng, stressed))[1] == 3 for _ in range(20))
    plain = sum(add_norm.implied_cell(add_norm.sample(rng, PLAIN))[1] == 3 for _ in range(20))
    assert hit > plain


def test_aiming_hits_every_reachable_cell(add_norm: ScheduleSpace) -> None:
    rng = np.random.default_rng(5)
    cells = add_norm.reachable()
    assert len(cells) >= 48 and all(len({cell[axis] for cell in cells}) == 4 for axis in range(3))
    for cell in sorted(cells):
        found = add_norm.aim(cell, rng, PLAIN)
        assert found is not None and add_norm.implied_cell(*found) == cell


def test_cells_that_only_values_of_parameters_reach_are_reachable() -> None:
    """The second operand of a narrow product is read once only if a panel is as wide as it."""
    space, rng = space_of(nn.Linear(256, 512, bias=False), [(128, 256)]), np.random.default_rng(0)
    by_values = 0
    for cell in sorted(space.reachable()):
        genome, params = space.aim(cell, rng, PLAIN) or ({}, {})
        values = ParameterSpace.parse(space.render(genome)).inherit(params)
        assert space.implied_cell(genome, values) == cell
        by_values += space.implied_cell(genome) != cell
    assert by_values


def test_aiming_keeps_the_values_of_what_it_starts_from_where_they_serve() -> None:
    space, rng = space_of(nn.Linear(256, 512, bias=False), [(128, 256)]), np.random.default_rng(0)
    near = space.default()
    values = ParameterSpace.parse(space.render(near)).draw(rng)
    genome, params = space.aim(space.implied_cell(near, values), rng, PLAIN, near, values) or ({}, {})
    assert params == values and space.implied_cell(genome, values) == space.implied_cell(near, values)


def test_a_block_of_scores_is_materialised_whether_they_are_masked_or_not() -> None:
    shapes = [(1, 2, 256, 64)] * 3
    plain, causal = (
        space_of(Attention(causal), shapes, l2_bytes=512 << 10, vector_bytes=32) for causal in (False, True)
    )
    genome = causal.default()
    assert genome["chain:1"] == "chained"
    assert causal.implied_cell(genome, {"CHAIN_ROWS": 128})[2] == 1
    assert plain.implied_cell(plain.default(), {"CHAIN_ROWS": 128})[2] == 1


def test_reachable_depends_on_the_task() -> None:
    mean = space_of(nn.MSELoss(), [(512, 512), (512, 512)]).reachable()
    assert max(cell[1] for cell in mean) == 2  # one number is written: nothing to stream
    norm = space_of(nn.LayerNorm(512), [(512, 512)]).reachable()
    assert {cell[2] for cell in norm} <= {2, 3}  # no tensor-sized intermediate to materialise


def test_the_implied_cell_follows_the_schedule(add_norm: ScheduleSpace) -> None:
    assert add_norm.implied_cell({"vector": "scalar"}) == (0, 0, 3)
    assert add_norm.implied_cell({}) == (0, 1, 3)
    assert add_norm.implied_cell({"unroll": "many"}) == (1, 1, 3)
    assert add_norm.implied_cell({"unroll": "many", "tile": "2"}) == (3, 1, 3)
    assert add_norm.implied_cell({"rows": "block"}) == (1, 1, 3)
    assert add_norm.implied_cell({"prefetch": "next"}) == (0, 2, 3)
    assert add_norm.implied_cell({"placement:add": "row"}) == (0, 2, 3)
    assert add_norm.implied_cell({"stream:out0": "stream"}) == (0, 3, 3)
    assert add_norm.implied_cell({"split:0.1": "split"}) == (0, 1, 2)
    roots = {"placement:pow_1": "root", "placement:mul": "root"}
    assert add_norm.implied_cell(roots) == (0, 1, 0)
    assert add_norm.implied_cell({"placement:mul": "root"}) == (0, 1, 1)


def test_a_loop_that_trips_once_is_no_tile(add_norm: ScheduleSpace) -> None:
    genome = {"tile": "1"}
    assert add_norm.implied_cell(genome, {"TILE": 2048})[0] == 1
    assert add_norm.implied_cell(genome, {"TILE": 1 << 20})[0] == 0


def test_one_source_serves_workloads_of_different_sizes() -> None:
    both = space_of(nn.Softmax(-1), [(64, 512)], [(32, 2048)])
    assert "EVO_SIZE(in0, 1)" in both.render({}) and "512" not in both.render({})


def test_workloads_whose_indices_depend_on_their_sizes_have_a_form_each() -> None:
    """Only where they do: what differs in sizes alone is one form."""
    for model in (nn.Conv2d(2, 3, 3, padding=1), Flipped()):
        apart = space_of(model, [(1, 2, 6, 6)], [(1, 2, 10, 10)])
        assert "if (EVO_SIZE(in0, 2) == 10 && EVO_SIZE(in0, 3) == 10)" in apart.render({})
        assert "if (EVO" not in space_of(model, [(2, 2, 6, 6)], [(4, 2, 6, 6)]).render({})


def test_forms_share_their_parameters() -> None:
    apart = space_of(nn.Conv2d(16, 32, 3, padding=1), [(1, 16, 12, 12)], [(2, 16, 20, 20)])
    alone = space_of(nn.Conv2d(16, 32, 3, padding=1), [(1, 16, 12, 12)])
    assert apart.genes() == alone.genes()
    for genome in (*apart.textbook(), *(apart.sample(np.random.default_rng(k), PLAIN) for k in range(10))):
        names = {one.name for one in ParameterSpace.parse(apart.render(genome)).parameters}
        assert {one.name for one in ParameterSpace.parse(alone.render(genome)).parameters} <= names
        assert apart.implied_cell(genome) == alone.implied_cell(genome)


def test_workloads_that_a_kernel_cannot_tell_apart_are_refused() -> None:
    """Of one size, stride and type each: what is computed alone differs, or how many tensors there are."""
    x = torch.zeros(8, 4)
    for apart in (
        [capture_graph(model, [x]) for model in (nn.Tanh(), nn.ReLU())],
        [capture_graph(nn.LeakyReLU(slope), [x]) for slope in (0.1, 0.2)],
        [capture_graph(nn.Linear(4, 4, bias=bias), [x]) for bias in (True, False)],
        [capture_graph(nn.Tanh(), [one]) for one in (x, x[0])],
    ):
        with pytest.raises(UnsupportedError, match=r"separate tasks"):
            ScheduleSpace(apart, l1_bytes=48 << 10, l2_bytes=1 << 20, vector_bytes=64, threads=2)


def test_maps_that_read_each_other_twice_are_walked_once() -> None:
    """By all ways from one to the other it would take for ever."""
    assert space_of(ScaledByUnrolled(), [(64, 16), (16,)]).render({}).count("evo::tanh(") == 40


def test_a_long_recurrence_is_not_planned_anew_for_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = []

    def counted(*arguments: Any) -> Any:
        plans.append(arguments)
        return regions(*arguments)

    monkeypatch.setattr(planner, "regions", counted)
    space_of(Stepped(), [(20, 8, 8), (8, 8)])
    assert len(plans) <= 4


class UnrolledSoftmax(Unrolled):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(super().forward(x), -1)


class Blurred(nn.Module):
    """Every step adds two neighbours of the step before: written out, there are 2⁴⁰."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(40):
            x = x[:, 1:] + x[:, :-1]
        return x


def test_rewrites_fit_whatever_was_computed_before() -> None:
    assert "maxsum" in space_of(UnrolledSoftmax(), [(64, 128)]).render({"rewrite:maxsum": "on"})


def test_sums_of_neighbours_are_kept_before_they_are_too_long() -> None:
    assert space_of(Blurred(), [(64, 128)]).render({}).count(" + ") < 2000


def test_chains_that_nest_too_deeply_are_refused_by_name() -> None:
    """What holds 400 operators within one another, none of which can be kept for itself."""
    body: Expr = Load("in0", (axis("i0"),))
    for _ in range(400):
        body = Op("tanh", (body,), "f32")
    tensors = {"in0": Tensor("in0", (64,), (1,), "f32", "in"), "out0": Tensor("out0", (64,), (1,), "f32", "out")}
    graph = Graph(tensors, (Stage("s", "map", (Axis("i0", 64),), body, ("out0",), origin="aten.tanh.default"),))
    with pytest.raises(UnsupportedError, match=r"nesting.*tanh"):
        ScheduleSpace([graph], l1_bytes=48 << 10, l2_bytes=1 << 20, vector_bytes=64, threads=2)


def test_an_unknown_gene_value_is_refused() -> None:
    from evoforge.lowering.schedule import Schedule

    with pytest.raises(UsageError, match="expected gene tile to be one of 0, 1, 2, 3, got tile='9'"):
        Schedule.from_genome({"tile": "9"})
    with pytest.raises(UsageError, match="got speed="):
        Schedule.from_genome({"speed": "fast"})


def test_rewrites_are_offered_where_they_fit(add_norm: ScheduleSpace) -> None:
    assert not [gene for gene in add_norm.genes() if gene.startswith("rewrite")]
    softmax = space_of(nn.Softmax(-1), [(64, 512)])
    assert "rewrite:maxsum" in softmax.genes()
    assert "maxsum" in softmax.render({"rewrite:maxsum": "on"}) and "maxsum" not in softmax.render({})
    assert "rewrite:welford" in space_of(nn.LayerNorm(512), [(64, 512)]).genes()


def test_where_infinities_have_to_match_rewrites_that_move_them_are_not_offered() -> None:
    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(64, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x).mean(1)

    offered, kept = (space_of(Mean(), [(64, 64)], finite=finite).genes() for finite in (True, False))
    assert "rewrite:reassociated" in offered
    assert not [gene for gene in kept if gene.startswith("rewrite")]


def test_textbook_schedules_begin_with_the_default_and_differ(add_norm: ScheduleSpace) -> None:
    found = add_norm.textbook()
    assert found[0] == add_norm.default()
    assert len({add_norm.render(genome) for genome in found}) == len(found) >= 3
    assert any("evo::stream(" in add_norm.render(genome) for genome in found[1:])


class Shared(nn.Module):
    """A layer whose activations two others read."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.beside = nn.Linear(48, 96), nn.Linear(96, 32), nn.Linear(96, 40)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = torch.sigmoid(self.up(x))
        return self.down(h), self.beside(h)


@pytest.mark.parametrize("batch", [1, 4, 400])
@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(48, 96), nn.Sigmoid(), nn.Linear(96, 32)),
        nn.Sequential(nn.Linear(48, 96), nn.ReLU(), nn.Linear(96, 64), nn.Sigmoid(), nn.Linear(64, 32)),
        nn.Sequential(nn.Sigmoid(), nn.Linear(48, 96)),
        Shared(),
    ],
    ids=["two layers", "three layers", "of an input", "two readers"],
)
def test_what_a_product_reads_is_computed_once_and_kept(model: nn.Module, batch: int) -> None:
    """However small it is beside the weights; the product goes over it for each of its columns."""
    space = space_of(model, [(batch, 48)])
    for genome in (space.default(), {k: v for k, v in space.default().items() if not k.startswith("chain")}):
        source = space.render(genome)
        assert source.count("evo::sigmoid(") == 1 and ("sigmoid_all" in source or "sigmoid_block" in source)
        assert batch == 1 or "const evo::vec sigmoid = evo::sigmoid(" in source


@pytest.mark.parametrize(
    ("model", "shapes", "pays"),
    [
        (Attention(False), [(2, 256, 64)] * 3, True),
        (Attention(True), [(1, 4096, 128)] * 3, True),  # what the mask hides is left out
        (nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32)), [(16384, 32)], True),
        (nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 256)), [(128, 512)], False),
        (nn.Sequential(nn.Conv2d(8, 64, 3), nn.GELU(), nn.AdaptiveAvgPool2d(1)), [(4, 8, 64, 64)], False),
    ],
    ids=["scores", "causal", "small layers", "large layers", "taps"],
)
def test_what_a_block_keeps_is_at_first_chained_where_products_pack_less_for_it(
    model: nn.Module, shapes: list[tuple[int, ...]], pays: bool
) -> None:
    space = space_of(model, shapes, l1_bytes=32 << 10, l2_bytes=512 << 10)
    genes = [gene for gene in space.genes() if gene.startswith("chain")]
    assert genes and {gene in space.default() for gene in genes} == {pays}


def test_threads_take_products_as_they_come_and_rows_in_equal_shares(add_norm: ScheduleSpace) -> None:
    product = space_of(nn.Linear(256, 256), [(128, 256)])
    assert "schedule(dynamic" in product.render(product.default())
    small = space_of(Products(), [(512, 16, 16)] * 2)
    for space in (small, add_norm):
        assert "schedule(dynamic" not in space.render(space.default())


@pytest.mark.parametrize(
    ("model", "shape", "known"),
    [
        (nn.Linear(256, 256), (128, 256), [({"vector": "scalar"}, -5.0)]),
        (nn.Linear(256, 256), (2, 256), []),
        (nn.Softmax(-1), (128, 256), []),
    ],
    ids=["computes", "waits for memory", "no contraction"],
)
def test_scalars_are_known_to_be_slow_where_a_contraction_computes(
    model: nn.Module, shape: tuple[int, ...], known: list[Any]
) -> None:
    assert space_of(model, [shape]).handicaps() == known


def test_quotients_that_are_rounded_are_quotients() -> None:
    """A product with a reciprocal may lie on the other side of a tie."""

    class Quantised(nn.Module):
        def __init__(self, whole: bool) -> None:
            super().__init__()
            self.whole = whole

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            share = x / x.abs().amax(1, keepdim=True) * 127
            return torch.round(share) if self.whole else share

    assert "math" in space_of(Quantised(False), [(64, 256)]).genes()
    assert "math" not in space_of(Quantised(True), [(64, 256)]).genes()


@pytest.mark.parametrize(
    ("shapes", "packed"),
    [
        ([(4096, 16, 16), (4096, 16, 16)], "pack"),  # many small products, whose rows are in the cache as they are
        ([(16384, 32), (32, 32)], "whole"),  # one small operand for many rows
        ([(512, 512), (512, 512)], "both"),
        ([(8, 128, 512), (8, 512, 256)], "both"),
        ([(64, 16384), (16384, 64)], "pack"),  # few columns for rows that are long
        ([(1024, 1024), (1024, 1024)], "both"),
    ],
)
def test_what_a_product_packs_at_first_follows_its_sizes(shapes: list[tuple[int, ...]], packed: str) -> None:
    class Product(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a @ b

    space = space_of(Product(), shapes, l1_bytes=32 << 10, l2_bytes=512 << 10)
    (gene,) = (gene for gene in space.genes() if gene.startswith("contract"))
    assert space.default()[gene] == packed


def test_short_sums_are_no_function_of_their_own_at_first() -> None:
    class Product(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a @ b

    class Triangle(Product):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return torch.triu(super().forward(a, b))

    cases = [(Product(), 32, True), (Product(), 512, True), (Product(), 1024, False), (Triangle(), 32, False)]
    for model, depth, inline in cases:
        space = space_of(model, [(96, depth), (depth, 96)])
        (gene,) = (gene for gene in space.genes() if gene.startswith("sums:"))
        assert ("evo::alone(" not in space.render(space.default())) == inline
        older = {key: value for key, value in space.default().items() if key != gene}  # such genomes are in stores
        assert "evo::alone(" in space.render(older)
        assert space.implied_cell(older) == space.implied_cell({**older, gene: "inline"})


@pytest.mark.parametrize(
    ("shapes", "tile"),
    [
        ([(64, 16384), (16384, 64)], (6, 2, 1)),  # 64 columns are whole panels of 2 vectors; packed once for all rows
        ([(64, 1024), (1024, 1024)], (4, 3, 1)),
        ([(512, 16384), (16384, 32)], (6, 2, 4)),  # two panels for two threads, of which each may be held up
    ],
)
def test_tiles_fit_what_there_is_of_columns_and_bands_what_there_is_of_rows(
    shapes: list[tuple[int, ...]], tile: tuple[int, int, int]
) -> None:
    class Product(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a @ b

    space = space_of(Product(), shapes, l1_bytes=32 << 10, l2_bytes=512 << 10, vector_bytes=32)
    declared = ParameterSpace.parse(space.render(space.default())).defaults()
    assert tuple(declared[name] for name in ("TILE_ROWS", "TILE_VECTORS", "BANDS")) == tile
