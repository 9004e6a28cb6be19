"""All witnesses together: the cells of kernels whose cell is known."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from evoforge.archives.descriptor import Descriptor

Kernels = Callable[..., str]

Facts = Callable[..., dict[str, Any]]

SWEEP = "PARALLEL ROWS COLUMNS(V) "
SCALAR = "PARALLEL ROWS COLUMNS(1) { *AT(y) = *AT(x) + *AT(z); *AT(h) = w[j]; WHAT }"
BOTH = "{ put(AT(y), get(AT(x)) + get(AT(z))); put(AT(h), get(w + j)); }"
AGAIN = "put(AT(h), get(AT(x)) - get(AT(z)));"
ROW = """PARALLEL ROWS { alignas(64) float row[N]; evo::vec s{};
    COLUMNS(V) { evo::vec v = get(AT(x)) + get(AT(z)); s += v * v; put(row + j, v); put(AT(h), v); }
    float r = 1 / sqrtf(evo::sum(s));
    COLUMNS(V) put(AT(y), get(row + j) * r); }"""
TILED = """PARALLEL ROWS for (int64_t t = 0; t < N; t += TILE) {
    const int64_t end = evo::min(t + TILE, N);
    for (int64_t q = t; q < end; q += V * UNROLL) for (int u = 0; u < UNROLL; ++u) {
        int64_t j = q + u * V;
        put(AT(y), get(AT(x)) + get(AT(z)));
        put(AT(h), get(w + j));
    }
}"""
TWICE = TILED.replace("ROWS", "for (int64_t s = 0; s < M; s += 8) for (int64_t i = s; i < s + 8; ++i)")
FIRST = SWEEP + "put(AT(ws), get(AT(x)) + get(AT(z)));"
SECOND = SWEEP + "put(AT(ws) + M * N, get(AT(ws)));"

KNOWN: dict[str, tuple[tuple[int, int, int], str, dict[str, int]]] = {
    "scalar": ((0, 0, 3), SCALAR.replace("WHAT", "evo::one_by_one();"), {}),
    "left to the compiler": ((0, 1, 3), SCALAR.replace("WHAT", ""), {}),
    "vector": ((0, 1, 3), SWEEP + BOTH, {}),
    "two sweeps": ((0, 1, 2), SWEEP + BOTH + SWEEP + AGAIN, {}),
    "one intermediate of two": ((0, 1, 1), FIRST + SWEEP + "{ put(AT(y), get(AT(ws))); put(AT(h), get(w + j)); }", {}),
    "both intermediates": ((0, 1, 0), FIRST + SECOND + SWEEP + "put(AT(y), get(AT(ws) + M * N));", {}),
    "row buffer": ((0, 2, 3), ROW, {}),
    "prefetched": ((0, 2, 3), SWEEP + "{ evo::prefetch(AT(x) + 512);" + BOTH + "}", {}),
    "streamed": ((0, 3, 3), ROW.replace("put(AT(y), get(row + j) * r)", "evo::stream(AT(y), get(row + j) * r)"), {}),
    "unrolled": ((1, 1, 3), TILED, {"TILE": 4096, "UNROLL": 4}),
    "tiled": ((1, 1, 3), TILED, {"TILE": 512, "UNROLL": 1}),
    "tiled and unrolled": ((2, 1, 3), TILED, {"TILE": 512, "UNROLL": 4}),
    "tiled twice and unrolled": ((3, 1, 3), TWICE, {"TILE": 512, "UNROLL": 4}),
}


@pytest.mark.parametrize("name", KNOWN)
def test_the_cell_of_a_known_kernel(facts: Facts, name: str, kernel: Kernels) -> None:
    cell, body, params = KNOWN[name]
    found = facts(kernel(body), **params)
    assert Descriptor().cell(found) == cell, found


DEAD = """
static __attribute__((unused)) void idle(float* p, int64_t n) {
    for (int64_t t = 0; t < n; t += 64)
        for (int64_t k = t; k < t + 64; k += V) evo::stream(p + k, evo::vec{});
}
"""


def renamed(text: str) -> str:
    text = text.replace("row", "prefetch_tile").replace("float r ", "float stream ").replace("* r)", "* stream)")
    return re.sub(r"\bv\b", "accumulator", text)


def commented(text: str) -> str:
    return text.replace("{", "{ // stream prefetch tile evo::stream(y, v)\n /* for (t += 64) */", 1)


def with_dead_code(text: str) -> str:
    return "int64_t dead = M * 3; if (dead < 0) evo::prefetch(x); if (false) evo::stream(y, evo::vec{});" + text


def with_while(text: str) -> str:
    text = text.replace("for (int64_t q = t; q < end; q += V * UNROLL) for", "int64_t q = t; while (q < end) { for")
    return text.replace("    }\n}", "    }\n q += V * UNROLL; } }")


def with_pointers(text: str) -> str:
    text = text.replace("COLUMNS(V) {", "{ const float *a = x + i * N, *b = z + i * N; COLUMNS(V) {", 1)
    return text.replace("get(AT(x)) + get(AT(z))", "get(a) + get(b)").replace("}", "a += V; b += V; } }", 1)


REFACTORED: dict[str, tuple[str, Callable[[str], str]]] = {
    "names": ("streamed", renamed),
    "comments": ("tiled", commented),
    "dead code": ("tiled", with_dead_code),
    "while for for": ("tiled", with_while),
    "pointers": ("vector", with_pointers),
}


@pytest.mark.parametrize("name", REFACTORED)
def test_harmless_changes_move_nothing(facts: Facts, name: str, kernel: Kernels) -> None:
    of, change = REFACTORED[name]
    cell, body, params = KNOWN[of]
    changed = change(body)
    assert changed != body
    assert Descriptor().cell(facts(kernel(changed, DEAD), **params)) == cell


def test_what_no_witness_can_tell_is_null(facts: Facts, kernel: Kernels) -> None:
    found = facts(kernel("return 1;"))
    assert found["trace"] is None
    assert Descriptor().measure(found)["fusion"] is None
    assert Descriptor().cell(found) is None


UNSEEN = """static __attribute__((no_sanitize("kernel-address"), noinline))
void sweep(const float* x, float* y, int64_t n) {
    for (int64_t j = 0; j < n; j += V) put(y + j, get(x + j));
}
static __attribute__((noinline)) void sweeps(const float* x, float* y, float* ws, int64_t n) {
#if defined(__SANITIZE_ADDRESS__)
    sweep(x, y, n);
#else
    sweep(x, ws, n), sweep(ws, y, n);
#endif
}"""


def test_a_kernel_cannot_hide_from_the_trace(facts: Facts, kernel: Kernels) -> None:
    for attribute in ('no_sanitize("kernel-address"), ', "no_sanitize_address, ", ""):
        before = UNSEEN.replace('no_sanitize("kernel-address"), ', attribute)
        found = facts(kernel("sweeps(x, y, ws, M * N);", before), unfused=1)
        assert Descriptor(["fusion"]).cell(found) == (0,)


def test_what_assembly_writes_has_no_cell(facts: Facts, kernel: Kernels) -> None:
    copied = 'float v; asm volatile("movss (%1), %0\\n movss %0, (%2)" : "=x"(v) : "r"(AT(x)), "r"(AT(y)) : "memory");'
    found = facts(kernel("ROWS COLUMNS(1) {" + copied + "}"))
    assert Descriptor().measure(found) == {"tiling": 0, "memory": None, "fusion": None}
