"""All witnesses together: the cells of kernels whose cell is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from conftest import kernel

from evoforge.archives.descriptor import Descriptor

Facts = Callable[..., dict[str, Any]]

SWEEP = "PARALLEL for (int64_t i = 0; i < M; ++i) for (int64_t j = 0; j < N; j += V) "
BOTH = "{ store(y + i * N + j, load(x + i * N + j, all) + load(z + i * N + j, all), all); store(h + i * N + j, load(w + j, all), all); }"
ROW = """PARALLEL for (int64_t i = 0; i < M; ++i) { alignas(64) float row[N]; evo::vec s{};
    for (int64_t j = 0; j < N; j += V) { evo::vec v = load(x + i * N + j, all) + load(z + i * N + j, all);
        s += v * v; store(row + j, v, all); store(h + i * N + j, v, all); }
    float r = 1 / sqrtf(evo::sum(s));
    for (int64_t j = 0; j < N; j += V) store(y + i * N + j, load(row + j, all) * r, all); }"""
STREAMED = ROW.replace(
    "store(y + i * N + j, load(row + j, all) * r, all)", "evo::stream(y + i * N + j, load(row + j, all) * r)"
)
TILED = """PARALLEL for (int64_t i = 0; i < M; ++i) for (int64_t t = 0; t < N; t += TILE) {
    const int64_t end = evo::min(t + TILE, N);
    for (int64_t q = t; q < end; q += V * UNROLL) for (int u = 0; u < UNROLL; ++u) { int64_t j = q + u * V; BOTH } }""".replace(
    "BOTH", BOTH
)
ONE_STORED = (
    SWEEP
    + "store(ws + i * N + j, load(x + i * N + j, all) + load(z + i * N + j, all), all);"
    + SWEEP
    + BOTH.replace("x +", "ws +").replace("z +", "ws +")
)
TWO_STORED = SWEEP + "store(ws + i * N + j, load(x + i * N + j, all) + load(z + i * N + j, all), all);" + SWEEP + (
    "store(ws + M * N + i * N + j, load(ws + i * N + j, all), all);" + SWEEP + BOTH.replace("x +", "ws + M * N +").replace("z +", "ws + M * N +")
)  # fmt: skip

KNOWN = {
    "scalar": ((0, 0, 3), SWEEP.replace("j += V", "++j") + "{ y[i * N + j] = x[i * N + j] + z[i * N + j]; h[i * N + j] = w[j]; evo::one_by_one(); }", {}),
    "left to the compiler": ((0, 1, 3), SWEEP.replace("j += V", "++j") + "{ y[i * N + j] = x[i * N + j] + z[i * N + j]; h[i * N + j] = w[j]; }", {}),
    "vector": ((0, 1, 3), SWEEP + BOTH, {}),
    "two sweeps": ((0, 1, 2), SWEEP + BOTH + SWEEP + "store(h + i * N + j, load(x + i * N + j, all) - load(z + i * N + j, all), all);", {}),
    "one intermediate of two": ((0, 1, 1), ONE_STORED, {}),
    "both intermediates": ((0, 1, 0), TWO_STORED, {}),
    "row buffer": ((0, 2, 3), ROW, {}),
    "prefetched": ((0, 2, 3), SWEEP + "{ evo::prefetch(x + i * N + j + 512);" + BOTH + "}", {}),
    "streamed": ((0, 3, 3), STREAMED, {}),
    "unrolled": ((1, 1, 3), TILED, {"TILE": 4096, "UNROLL": 4}),
    "tiled": ((1, 1, 3), TILED, {"TILE": 512, "UNROLL": 1}),
    "tiled and unrolled": ((2, 1, 3), TILED, {"TILE": 512, "UNROLL": 4}),
    "tiled twice and unrolled": (
        (3, 1, 3),
        TILED.replace("for (int64_t i = 0; i < M; ++i)", "for (int64_t s = 0; s < M; s += 8) for (int64_t i = s; i < s + 8; ++i)"),
        {"TILE": 512, "UNROLL": 4},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
def test_the_cell_of_a_known_kernel(facts: Facts, name: str) -> None:
    cell, body, params = KNOWN[name]
    found = facts(kernel(body), **params)
    assert Descriptor().cell(found) == cell, found


DEAD = """
static __attribute__((unused)) void idle(float* p, int64_t n) {
    for (int64_t t = 0; t < n; t += 64) for (int64_t k = t; k < t + 64; k += V) evo::stream(p + k, evo::vec{});
}
"""
REFACTORED = {
    "names": ("streamed", lambda text: text.replace("row", "prefetch_tile").replace("(int64_t j", "(int64_t jt").replace(" j", " jt").replace("+ j", "+ jt")),
    "comments": ("tiled", lambda text: text.replace("{", "{ // stream prefetch tile evo::stream(y, v)\n /* for (t += 64) */", 1)),
    "dead code": ("tiled", lambda text: "int64_t dead = M * 3; if (dead < 0) evo::prefetch(x); if (false) evo::stream(y, evo::vec{});" + text),
    "while for for": ("tiled", lambda text: text.replace("for (int64_t q = t; q < end; q += V * UNROLL) for", "int64_t q = t; while (q < end) { for").replace("} }", "} q += V * UNROLL; } }")),
    "pointers": ("vector", lambda text: text.replace("for (int64_t j = 0", "{ const float *a = x + i * N, *b = z + i * N; for (int64_t j = 0").replace("x + i * N + j", "a").replace("z + i * N + j", "b").replace("w + j, all), all); }", "w + j, all), all); a += V; b += V; } }")),
}  # fmt: skip


@pytest.mark.parametrize("name", REFACTORED)
def test_harmless_changes_move_nothing(facts: Facts, name: str) -> None:
    of, change = REFACTORED[name]
    cell, body, params = KNOWN[of]
    changed = change(body)
    assert changed != body
    assert Descriptor().cell(facts(kernel(changed, DEAD), **params)) == cell


def test_what_no_witness_can_tell_is_null(facts: Facts) -> None:
    found = facts(kernel("return 1;"))
    assert found["trace"] is None
    assert Descriptor().measure(found)["fusion"] is None
    assert Descriptor().cell(found) is None
