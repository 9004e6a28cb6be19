"""What there is to decide about one task, and random decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from evoforge.core import Strategy
from evoforge.lowering.chain import Chain
from evoforge.lowering.contraction import LONGEST, Contraction, find_contraction
from evoforge.lowering.domain import Domain, Node
from evoforge.lowering.index import names as axes_of
from evoforge.lowering.ir import Cast, Const, Expr, Load, Op, Position, nodes
from evoforge.lowering.lanes import INTS
from evoforge.lowering.nests import Nest
from evoforge.lowering.planner import links, make_plan
from evoforge.lowering.regions import has_a_place, regions
from evoforge.lowering.schedule import CHOICES, Schedule, gene_name
from evoforge.lowering.stages import dtype_of

__all__ = ["Genes", "Genome"]

Genome = dict[str, Any]

_LIKELY = {
    "vector": (0.85, 0.15), "unroll": (0.4, 0.6), "tile": (0.5, 0.25, 0.15, 0.1), "rows": (0.75, 0.25),
    "omp": (0.85, 0.15), "reduction": (0.85, 0.15), "math": (0.5, 0.5), "tiny": (0.5, 0.5),
    "sums": (0.4, 0.6), "contract": (0.08, 0.12, 0.2, 0.25, 0.15, 0.2, 0.4),
    "prefetch": (0.35, 0.2, 0.25, 0.2), "during": (0.3, 0.35, 0.35), "stream": (0.45, 0.55),
    "placement": (0.45, 0.35, 0.2), "split": (0.8, 0.2), "chain": (0.3, 0.7), "rewrite": (0.6, 0.4),
}  # fmt: skip
"""How often a sample takes each value of a gene, before the strategy's weights."""
_AT_FIRST = ("picked", "reassociated", "factored", "phases", "padded", "winograd")  # rewrites
_VANISHING = ("exp", "exp2")  # whose results soon leave the normal numbers
_STEPS = ("floor", "ceil", "round", "trunc", "floordiv", "mod", "fmod")
_LARGE = 1 << 18  # products; what takes ten microseconds bears being handed out
_FEW = 7  # with more steps than so many for a column, packing the narrow operand takes longer than it saves
_SMALL = 16  # an output so many times smaller than the largest tensor is not worth a decision


def _moves_less(by: Expr, node: Node) -> bool:
    """Whether a divisor is one number for a whole row: a literal, or what fewer axes move than the result."""
    if isinstance(by, Const):
        return True
    access = node.accesses.get(by) if isinstance(by, Load) else None
    return access is not None and access.terms is not None and len(access.axes) < len(node.axes)


class Genes:
    """The genes of one task and their values.

    Args:
        domain: of the graph without rewrites.
        rewrites: names of the rewrites that its graph allows.
        matrix: whether the target has a matrix unit.
        l1_bytes, l2_bytes: private caches of a core.
    """

    def __init__(
        self, domain: Domain, rewrites: Sequence[str], threads: int, l1_bytes: int, l2_bytes: int, matrix: bool = False
    ) -> None:
        self._domain, self._matrix, self._l1_bytes, self._l2_bytes = domain, matrix, l1_bytes, l2_bytes
        self._large = False  # whether a matrix product is worth sharing among threads
        self._packed: dict[str, str] = {}  # gene of a contraction → what its sizes ask for
        self._chained: dict[str, str] = {}  # genes of the chains that pay
        self.values = self._find(rewrites, threads)
        """Gene → values, the plain one first; the same for every genome of a task."""

    def _find(self, rewrites: Sequence[str], threads: int) -> dict[str, tuple[str, ...]]:
        domain = self._domain
        found: dict[str, tuple[str, ...]] = {}
        for name in rewrites:
            found[f"rewrite:{name}"] = CHOICES["rewrite"]
        reduces = any(node.kind == "reduce" for node in domain.nodes)
        for gene in ("vector", "unroll", "tile", "rows", "omp", "prefetch", "during"):
            found[gene] = CHOICES[gene]
        if reduces:
            found["reduction"] = CHOICES["reduction"]
        parts = [(node, part) for node in domain.nodes for part in nodes(node.body) if isinstance(part, Op)]
        divides = any(part.name == "div" and _moves_less(part.args[1], node) for node, part in parts)
        if (reduces or divides) and not self._has_steps():
            found["math"] = CHOICES["math"]
        if any(part.name in _VANISHING for _, part in parts):
            found["tiny"] = CHOICES["tiny"]
        plan = make_plan(domain, Schedule(), threads)
        for nest in plan.nests:
            contraction = find_contraction(domain, nest)
            if contraction is not None:
                choices = CHOICES["contract"][: None if self._matrix else -1]
                name, summed = nest.passes[0].reduces[0].name, contraction.products[0].node.reduction
                found[f"contract:{name}"], found[f"sums:{name}"] = choices, CHOICES["sums"]
                self._packed[f"contract:{name}"] = self._packing(contraction, nest)
                # Sums that are cut have accumulators for the piece and for the whole, and what compares positions has
                # vectors of them: more than registers.
                placed = any(isinstance(part, Position) for n in nest.passes[0].row_maps for part in nodes(n.body))
                short = domain.numel(summed).first <= LONGEST
                self._packed[f"sums:{name}"] = "inline" if short and not placed else "alone"
                one = {*contraction.block, contraction.lane, *summed}
                self._large |= min(domain.numel(sorted(one)).values) >= _LARGE
        found |= self._streams()
        self._regions = regions(domain, plan.kept)
        read = {access.tensor for node in domain.nodes for access in node.reads()}
        for number, group in enumerate(self._regions):
            has_reduce = any(node.kind == "reduce" for node in group)
            maps = [n for n in group if n.kind == "map" and has_a_place(domain, n)]
            for node in maps:
                again = any(out in read for out in node.outputs)
                if again:
                    found[f"placement:{node.name}"] = CHOICES["placement"] if has_reduce else ("inline", "root")
            depth = sum(node.kind == "reduce" for node in group) + sum(f"placement:{n.name}" in found for n in maps)
            for boundary in range(1, min(depth, 6) + 1):
                found[f"split:{number}.{boundary}"] = CHOICES["split"]
        linked = list(links(domain, plan))
        masked = any(chain.ends for chain, _ in linked)  # chained, they leave out what is hidden
        for chain, nests in linked:
            gene = f"chain:{nests[-1].region}"
            found[gene] = CHOICES["chain"]
            if masked or self._hands_on(chain, nests):
                self._chained[gene] = "chained"
        return found

    def _hands_on(self, chain: Chain, nests: Sequence[Nest]) -> bool:
        """Whether a block of rows keeps more in the cache than its products pack anew for it, which apart is packed
        once: attention's scores do, an image that is gathered for each of a convolution's taps does not."""
        contractions = [found for nest in nests if (found := find_contraction(self._domain, nest)) is not None]
        if not contractions:
            return True
        outer, size = set(chain.axes[:-1]), self._domain.numel
        wide = [axes_of(product.wide) for found in contractions for product in found.products]
        packed = max((size(sorted(axes - outer)).first for axes in wide if chain.axes[-1] not in axes), default=0)
        passes = [one for nest in nests for one in nest.passes]
        made = {node for one in passes for node in (*one.nodes, *one.row_maps)}
        read = {out for one in passes for out, how in one.reads.items() if how == "memory"}
        handed = [node for node in made if node.name in self._domain.repeated or read & set(node.outputs)]
        blocks = [node.axes for node in handed if node.axes[: len(chain.axes)] == chain.axes]
        kept = sum(size([a for a in axes if a not in outer]).first for axes in blocks)
        return min(4 * kept, self._l2_bytes) > 4 * packed

    def _packing(self, contraction: Contraction, nest: Nest) -> str:
        """Both operands side by side, but narrow ones of many small products, or whose long rows few columns use, stay
        as they are, and wide ones that are small are packed whole, once for many rows."""
        (product, *_), size = contraction.products, self._domain.numel
        if len(contraction.products) > 1 or len(product.node.reduction) > 1:
            return "both"
        batches = set(nest.rows) - contraction.block - {contraction.lane}
        if batches and 4 * size([*contraction.block, *product.node.reduction]).first <= self._l1_bytes // 2:
            return "pack"
        if not batches and 4 * size([contraction.lane, *product.node.reduction]).first <= self._l2_bytes // 4:
            return "whole"
        (summed,), narrow = product.node.reduction, product.narrow
        steps, columns = size([summed]).first, size([contraction.lane]).first
        along = isinstance(narrow, Load) and product.node.accesses[narrow].step(summed) == 1
        return "pack" if along and steps > max(LONGEST, _FEW * columns) else "both"

    def _has_steps(self) -> bool:
        """Whether numbers become whole ones: a quotient on a tie has to be the quotient."""
        found, whole = [part for node in self._domain.nodes for part in nodes(node.body)], (*INTS, "bool")
        casts = [part for part in found if isinstance(part, Cast) and part.dtype in INTS]
        made = any(dtype_of(part.arg, self._domain.tensors) not in whole for part in casts)
        return made or any(isinstance(part, Op) and part.name in _STEPS for part in found)

    def _streams(self) -> dict[str, tuple[str, ...]]:
        """The genes of those outputs that vectors can be streamed to; what is small stays in the caches anyway."""
        tensors = self._domain.tensors.values()
        enough = max(t.numel for t in tensors) / _SMALL
        large = [t for t in tensors if t.kind == "out" and t.dtype in ("f32", "f16", "bf16") and t.numel >= enough]
        return {f"stream:{t.name}": CHOICES["stream"] for t in large}

    def keys(self, gene: str) -> list[str]:
        """Those of one kind: ``placement`` → ``placement:s3``, …"""
        return [key for key in self.values if gene_name(key) == gene]

    def tidy(self, genome: Mapping[str, Any]) -> Genome:
        """Known genes that are not plain, in order."""
        return {
            key: genome[key]
            for key, values in self.values.items()
            if key in genome and genome[key] in values and genome[key] != values[0]
        }

    def default(self) -> Genome:
        """The first kernel of a campaign: vectors, several at a time, everything fused, chained where that pays.

        A map that a sum of a chained region reads is kept: there it would be computed once per use. Threads take
        the parts of a large product as they come.
        """
        genome = {**self._packed, **self._chained}
        if self._large:
            genome["omp"] = "dynamic"  # the processor that others slow gets less to do
        kept = dict.fromkeys(self.summed_elsewhere, "root")
        rewritten = {
            f"rewrite:{name}": "on" for name in ("picked", "reassociated", "factored", "phases", "padded", "winograd")
        }
        return self.tidy({"unroll": "many", **rewritten, **genome, **kept})

    def textbook(self) -> list[Genome]:
        """What a practitioner tries first: the default, the matrix unit where there is one, results past the caches,
        and rows kept and fetched ahead, without numbers that are not normal."""
        plain = self.default()
        apart = {key: value for key, value in plain.items() if gene_name(key) != "chain"}
        matrix = {**apart, **dict.fromkeys(self.keys("contract"), "matrix")}  # void without a unit
        streamed = {**plain, **dict.fromkeys(self.keys("stream"), "stream")}
        kept = {key: "row" for key in self.keys("placement") if "row" in self.values[key] and key not in plain}
        rows = {**streamed, **kept, "prefetch": "spread", "math": "reciprocal", "tiny": "flushed"}
        rewritten = {**plain, **dict.fromkeys(self.keys("rewrite"), "on")}
        return [self.tidy(genome) for genome in (plain, matrix, streamed, rows, rewritten)]

    def draw(self, rng: np.random.Generator, strategy: Strategy) -> Genome:
        """A random genome."""
        return self.tidy({key: self.pick(key, rng, strategy) for key in self.values})

    def pick(self, key: str, rng: np.random.Generator, strategy: Strategy, unlike: str | None = None) -> str:
        """A random value of one gene."""
        values, weights = self.values[key], self._weights(key, strategy)
        if unlike is not None:
            weights = np.array([0.0 if v == unlike else w for v, w in zip(values, weights, strict=True)])
            if weights.sum() <= 0:
                weights = np.array([float(v != unlike) for v in values])
        return values[int(rng.choice(len(values), p=weights / weights.sum()))]

    def _weights(self, key: str, strategy: Strategy) -> np.ndarray[Any, np.dtype[np.float64]]:
        gene, values = gene_name(key), self.values[key]
        likely = dict(zip(CHOICES[gene], _LIKELY[gene], strict=True))  # of values that this target lacks, too
        weights = np.array([likely[v] * strategy.priors.get(f"{gene}={v}", 1.0) for v in values])
        return weights if weights.sum() > 0 else np.ones(len(values))

    @cached_property
    def summed_elsewhere(self) -> list[str]:
        """The placements of maps that a reduction of a later region reads many times, or can be chained to theirs."""
        found = []
        chained = [node for at, group in enumerate(self._regions) if f"chain:{at}" in self.values for node in group]
        for group in self._regions:
            later = [node for node in chained if node.kind == "reduce" and node not in group]
            read = {access.tensor for node in later for access in node.reads()}
            read |= {out for node in group if node.name in self._domain.repeated for out in node.outputs if out}
            found += [f"placement:{node.name}" for node in group if node.kind == "map" and read & set(node.outputs)]
        return found

    def is_out(self, key: str) -> bool:
        """Whether a placement is that of an output."""
        node = next((n for n in self._domain.nodes if n.name == key.partition(":")[2]), None)
        return node is not None and any(self._domain.tensors[o].kind == "out" for o in node.outputs if o)
