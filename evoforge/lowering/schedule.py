"""The genome: a schedule's decisions, and their form as JSON.

A genome is a flat JSON object, gene → value. Genes that a task does not have are absent; a gene
that other decisions make void is ignored. Parameters (TILE, UNROLL, …) are not genes: they are
declared in the rendered source and tuned there. A nest that can share no value of one with the nests before it has
its own (TILE_ROWS_2, …).

    vector        vector | scalar
    unroll        one | many            accumulators or vectors per step (parameter UNROLL)
    tile          0 | 1 | 2 | 3         strided loops over the swept axis (TILE, TILE2, TILE3)
    rows          one | block           rows per task (parameter ROW_BLOCK)
    omp           static | dynamic      distribution of tasks to threads
    reduction     direct | chunks       whole rows, or chunks in parallel that are combined (CHUNK)
    contract:S    rows | block | pack | both | deep | whole | matrix
                  sums of products of stage S: one output at a time, or register blocks, with the
                  wide operand, or both, packed; or packed a piece of the sum at a time; or the wide
                  operand packed whole, and every block of rows run over all of it; or both packed as
                  brain floats for the matrix unit, where the target has one
                  (TILE_ROWS, TILE_VECTORS, DEPTH, BANDS)
    sums:S        alone | inline        whether a block's sums of stage S run in a function of their own
    math          exact | reciprocal    x / y where y is one number for a row, or x · (1 / y)
    tiny          kept | flushed        results below the smallest normal number, which some processors take long for
    prefetch      none | ahead | next | spread
                  of the same row at a distance (AHEAD); of the next row, in one pass or spread
                  over all passes
    during        first | middle | last  which pass fetches the next row
    stream:OUT    plain | stream        non-temporal stores of one output
    placement:S   inline | row | root   where a map's tensor-sized result lives
    split:R.B     fused | split         whether region R's nest is cut before pass B
    chain:R       apart | chained  whether region R's nests run with those before them on blocks of rows (CHAIN_ROWS)
    rewrite:NAME  off | on              algebraic rewrites of the graph
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evoforge.errors import UsageError

__all__ = ["CHOICES", "Schedule", "gene_name"]

CHOICES: dict[str, tuple[str, ...]] = {
    "vector": ("vector", "scalar"),
    "unroll": ("one", "many"),
    "tile": ("0", "1", "2", "3"),
    "rows": ("one", "block"),
    "omp": ("static", "dynamic"),
    "reduction": ("direct", "chunks"),
    "contract": ("rows", "block", "pack", "both", "deep", "whole", "matrix"),
    "sums": ("alone", "inline"),
    "math": ("exact", "reciprocal"),
    "tiny": ("kept", "flushed"),
    "prefetch": ("none", "ahead", "next", "spread"),
    "during": ("first", "middle", "last"),
    "stream": ("plain", "stream"),
    "placement": ("inline", "row", "root"),
    "split": ("fused", "split"),
    "chain": ("apart", "chained"),
    "rewrite": ("off", "on"),
}
"""Gene (without what follows the colon) → its values; the first is the plain one."""


def gene_name(key: str) -> str:
    """``placement:s3`` → ``placement``."""
    return key.partition(":")[0]


@dataclass(frozen=True)
class Schedule:
    """A genome, decoded. Mappings are keyed by what follows the gene's colon."""

    vector: bool = True
    unroll: bool = False
    tile: int = 0
    row_block: bool = False
    omp: str = "static"
    reduction: str = "direct"
    reciprocal: bool = False
    flushed: bool = False
    prefetch: str = "none"
    during: str = "last"
    stream: Mapping[str, bool] = field(default_factory=dict)
    placement: Mapping[str, str] = field(default_factory=dict)
    split: Mapping[str, str] = field(default_factory=dict)
    contract: Mapping[str, str] = field(default_factory=dict)
    sums: Mapping[str, str] = field(default_factory=dict)
    chain: Mapping[str, bool] = field(default_factory=dict)
    rewrites: tuple[str, ...] = ()

    @classmethod
    def from_genome(cls, genome: Mapping[str, Any]) -> Schedule:
        """Decodes a genome; absent genes take their plain value.

        Raises:
            UsageError: a gene or a value that does not exist.
        """
        for key, value in genome.items():
            if value not in CHOICES.get(gene_name(key), ()):
                known = CHOICES.get(gene_name(key))
                expected = f"gene {key} to be one of {', '.join(known)}" if known else f"a gene of {', '.join(CHOICES)}"
                raise UsageError(
                    f"expected {expected}, got {key}={value!r}; make the genome with this version of evoforge"
                )

        def keyed(gene: str) -> dict[str, str]:
            return {
                key.partition(":")[2]: value for key, value in genome.items() if gene_name(key) == gene and ":" in key
            }

        return cls(
            vector=genome.get("vector", "vector") == "vector",
            unroll=genome.get("unroll", "one") == "many",
            tile=int(genome.get("tile", "0")),
            row_block=genome.get("rows", "one") == "block",
            omp=genome.get("omp", "static"),
            reduction=genome.get("reduction", "direct"),
            reciprocal=genome.get("math", "exact") == "reciprocal",
            flushed=genome.get("tiny", "kept") == "flushed",
            prefetch=genome.get("prefetch", "none"),
            during=genome.get("during", "first"),
            stream={name: value == "stream" for name, value in keyed("stream").items()},
            placement=keyed("placement"),
            split=keyed("split"),
            contract=keyed("contract"),
            sums=keyed("sums"),
            chain={region: value == "chained" for region, value in keyed("chain").items()},
            rewrites=tuple(sorted(name for name, value in keyed("rewrite").items() if value == "on")),
        )
