from __future__ import annotations

from collections.abc import Callable

import pytest

from evoforge.core import Signature, Status
from evoforge.evaluation.build import Builder
from evoforge.evaluation.built import Built
from evoforge.evaluation.facts import collect_facts
from evoforge.evaluation.facts.syntax import syntax_facts

Kernels = Callable[..., str]
Levels = Callable[..., int]

COPY = "put(AT(y), get(AT(x)));"


@pytest.fixture
def levels(signature: Signature, kernel: Kernels, builder: Builder) -> Levels:
    def of(body: str, before: str = "", **params: int) -> int:
        found = syntax_facts(kernel(body, before), params, signature, builder)
        assert found is not None
        return int(found["levels"])

    return of


@pytest.mark.parametrize(
    ("expected", "body"),
    [
        (0, f"ROWS for (int64_t j = 0; j < N; ++j) {COPY}"),
        (0, f"ROWS COLUMNS(V) {COPY}"),
        (1, f"ROWS for (int64_t t = 0; t < N; t += 256) for (int64_t j = t; j < t + 256; j += V) {COPY}"),
        (1, f"ROWS for (int64_t t = 0; t < N; t += 256) {{ const int64_t end = evo::min(t + 256, N);"
            f"for (int64_t j = t; j < end; ++j) {COPY} }}"),
        (1, f"ROWS for (int64_t t = 0; t < N; t += 256) {{ int64_t end = t + 256; if (end > N) end = N;"
            f"int64_t j = t; while (j < end) {{ {COPY} ++j; }} }}"),
        (0, f"for (int64_t t = 0; t < M / 16; ++t) for (int r = 0; r < 16; ++r) COLUMNS(V) {{"
            f"int64_t i = t * 16 + r; {COPY} }}"),
        (1, "ROWS { float* p = y + i * N; for (int64_t t = 0; t < N; t += 256)"
            "for (int64_t j = t; j < evo::min(t + 256, N); ++j) *p++ = 0; }"),
        (1, "ROWS for (int64_t t = 0; t < N; t += 4 * V)\n#pragma GCC unroll 4\nfor (int u = 0; u < 4; ++u) {"
            "const int64_t j = t + u * V; put(AT(y), get(AT(x))); }"),
        (1, "ROWS for (int64_t t = 0; t < N; t += 4 * V) evo::unroll<4>([&](auto u) {"
            "const int64_t j = t + u * V; put(AT(y), get(AT(x))); });"),
        (0, "ROWS for (int64_t t = 0; t < N; t += V) evo::unroll<1>([&](auto u) {"
            "const int64_t j = t + u * V; put(AT(y), get(AT(x))); });"),
        (1, "for (int64_t t = 0; t < N; t += 256) for (int64_t k = 0; k < 256; ++k) y[t + k] = x[t + k];"),
        (2, f"ROWS for (int64_t t = 0; t < N; t += 1024) for (int64_t q = t; q < t + 1024; q += 256)"
            f"for (int64_t j = q; j < q + 256; ++j) {COPY}"),
        (2, "for (int64_t s = 0; s < M; s += 8) for (int64_t t = 0; t < N; t += 512)"
            f"for (int64_t i = s; i < s + 8; ++i) for (int64_t j = t; j < t + 512; j += V) {COPY}"),
    ],
)  # fmt: skip
def test_each_loop_within_an_outer_step_is_a_level(levels: Levels, expected: int, body: str) -> None:
    assert levels(body) == expected


UNROLLED = """ROWS for (int64_t t = 0; t < N; t += TILE)
    for (int64_t q = t; q < evo::min(t + TILE, N); q += V * UNROLL) for (int u = 0; u < UNROLL; ++u) {
        int64_t j = q + u * V; put(AT(y), get(AT(x))); }"""


@pytest.mark.parametrize(("tile", "unroll", "expected"), [(512, 4, 2), (512, 1, 1), (4096, 4, 1), (4096, 1, 0)])
def test_a_loop_that_trips_once_is_no_level(levels: Levels, tile: int, unroll: int, expected: int) -> None:
    assert levels(UNROLLED, TILE=tile, UNROLL=unroll) == expected


def test_the_product_form_is_a_tile_where_the_factor_is_a_parameter(levels: Levels) -> None:
    body = (
        "for (int64_t t = 0; t < M / T0; ++t) for (int r = 0; r < T0; ++r) COLUMNS(V) { int64_t i = t * T0 + r; COPY }"
    )
    assert levels(body.replace("COPY", COPY), T0=16) == 1
    assert levels(body.replace("COPY", COPY), T0=1) == 0


def test_a_register_block_is_told_from_a_tile(signature: Signature, kernel: Kernels, builder: Builder) -> None:
    found = syntax_facts(kernel(UNROLLED), {"TILE": 512, "UNROLL": 4}, signature, builder)
    assert found == {"tiles": 1, "levels": 2, "register_block": True, "nest": 4}


def test_a_vector_written_as_a_scalar_loop_is_no_level(levels: Levels) -> None:
    body = "ROWS for (int64_t j = 0; j < N; j += V) for (int k = 0; k < V; ++k) AT(y)[k] = AT(x)[k];"
    assert levels(body) == 0


def test_walking_rows_is_not_tiling_however_it_is_written(levels: Levels) -> None:
    pointers = """ROWS { const float* from = x + i * N; float* to = y + i * N;
        for (const float* end = from + N; from < end; from += V, to += V) store(to, load(from, all), all); }"""
    assert levels(pointers) == 0


FUNCTION = """constexpr int64_t END = EVO_SIZE(in0, 1);
static inline int64_t last(int64_t from) { return from + 512 < END ? from + 512 : END; }
template <int64_t Step>
static void piece(const float* a, float* b, int64_t from) {
    for (int64_t j = from; j < last(from); j += Step) store(b + j, load(a + j, all), all);
}"""


def test_calls_and_lambdas_are_followed(levels: Levels) -> None:
    called = "ROWS for (int64_t t = 0; t < N; t += 512) piece<V>(x + i * N, y + i * N, t);"
    lambdas = """auto piece = [&](int64_t i, int64_t j) {
            for (int64_t k = 0; k < 512; k += V) put(AT(y) + k, get(AT(x) + k)); };
        ROWS for (int64_t t = 0; t < N; t += 512) piece(i, t);"""
    assert levels(called, FUNCTION) == 1
    assert levels(lambdas) == 1


def test_code_that_does_not_run_is_not_seen(levels: Levels) -> None:
    tiles = "for (int64_t t = 0; t < N; t += 256) for (int64_t j = t; j < t + 256; ++j) y[j] = x[j];"
    unused = f"static void unused(const float* x, float* y, int64_t N) {{ {tiles} }}"
    plain = "for (int64_t j = 0; j < N; ++j) y[j] = x[j];"
    assert levels(plain + f"if (false) {{ {tiles} }} if (M > 1000000) {{ {tiles} }}", unused) == 0
    assert levels("#if 0\n" + tiles + "\n#endif\n" + plain + f"// {tiles}\n") == 0


def test_conditionals_use_the_parameters(levels: Levels) -> None:
    body = """
#if TILED
    for (int64_t t = 0; t < N; t += 256) for (int64_t j = t; j < t + 256; ++j) y[j] = x[j];
#else
    for (int64_t j = 0; j < N; ++j) y[j] = x[j];
#endif
"""
    assert [levels(body, TILED=tiled) for tiled in (0, 1)] == [0, 1]


def test_text_without_the_entry_or_that_cannot_be_preprocessed_has_no_facts(
    signature: Signature, builder: Builder
) -> None:
    assert syntax_facts("int main() { return 0; }", {}, signature, builder) is None
    assert syntax_facts("#if\n#error no\n", {}, signature, builder) is None


TILED = "for (int64_t t = 0; t < N; t += 256) for (int64_t j = t; j < t + 256; ++j) y[j] = x[j];"
UNTILED = "for (int64_t j = 0; j < N; ++j) y[j] = x[j];"


@pytest.mark.parametrize("macro", ["__SSE2__", "_OPENMP", "__OPTIMIZE__", "EVO_IN", "INT64_MAX"])
def test_the_branch_that_is_compiled_is_the_one_that_is_seen(levels: Levels, macro: str) -> None:
    assert levels(f"\n#ifdef {macro}\n{TILED}\n#else\n{UNTILED}\n#endif\n") == 1
    assert levels(f"\n#ifdef {macro}\n{UNTILED}\n#else\n{TILED}\n#endif\n") == 0


@pytest.mark.parametrize(
    "line", ["%:include <stdint.h>", "/* a comment\n#include <foo> */", '#line 9 "other.h"', '# 9 "other.h" 1']
)
def test_how_a_header_is_included_and_what_a_line_is_said_to_be_hide_nothing(levels: Levels, line: str) -> None:
    assert levels(TILED, line) == 1


def test_members_and_overloads_are_followed(levels: Levels) -> None:
    tiled = "(const float* x, float* y, int64_t N) { TILED }".replace("TILED", TILED)
    assert levels("Tool::work(x, y, N);", f"struct Tool {{ static void work{tiled} }};") == 1
    assert levels("Tool tool; tool.work(x, y, N);", f"class Tool {{ public: void work{tiled} }};") == 1
    assert levels("Tool tool; tool(x, y, N);", f"struct Tool {{ void operator(){tiled} }};") == 1
    by = "template <int Size> struct Tool { static void work" + tiled.replace("256", "Size") + " };"
    assert levels("Tool<256>::work(x, y, N);", by) == 1
    unused = "static void work(float) {} static void work(float* x, float y, int64_t N) {}"
    assert levels("work(x, y, N);", f"static void work{tiled} {unused}") == 1
    assert levels("work(x, y, N);", f"{unused} static void work{tiled}") == 1


def test_a_parameter_may_become_part_of_a_name(levels: Levels) -> None:
    before = "#define JOIN(a, b) a##b\n#define CALL(a, b) JOIN(a, b)\n"
    before += f"static void work_8(const float* x, float* y, int64_t N) {{ {TILED} }}"
    assert levels("CALL(work_, WIDE)(x, y, N);", before, WIDE=8) == 1


@pytest.mark.parametrize(
    ("reached", "body"),
    [
        (0, f"if (call->n_in == 7) {{ {TILED} }} {UNTILED}"),
        (0, f"{UNTILED} if (call->n_out) return 0; {TILED}"),
        (0, f"{UNTILED} return 0; {TILED}"),
        (0, f"if (call->in[0].size[1] < 16) {{ {TILED} }} else {{ {UNTILED} }}"),
        (0, f"{UNTILED} for (;;) {{ break; {TILED} }}"),
        (1, f"switch (M) {{ case 1: break; default: {TILED} }}"),
        (1, f"if (x[0] > 0) goto after; return 0; after: {TILED}"),
        (1, f"if (x[0] > 0) return 1; {TILED}"),
        (1, f"for (int64_t i = 0; i < M; ++i) {{ if (x[i] > 0) continue; }} {TILED}"),
    ],
)
def test_what_no_call_reaches_is_no_level(levels: Levels, reached: int, body: str) -> None:
    assert levels(body) == reached


@pytest.mark.parametrize(
    ("body", "before"),
    [
        ("for (int64_t i = 0; i < 1; i += 0) break;", ""),
        ("int64_t i = 0; while (i < M) { ++i; --i; break; }", ""),
        ("", "constexpr int64_t big = " + "1 + " * 3000 + "1;"),
        ("", "static const int table[] = {" + "1, " * 300_000 + "};"),
        ("uint64_t h = 3;" + "h = h * h;" * 40 + "y[0] = h;", ""),
        ("float s = 0;" + "".join(f"s = s + x[{k}];" for k in range(3000)) + "y[0] = s;", ""),
        ("ROWS {" + "f(x);" * 300 + "}", "static void f(const float* p) { if (0) {" + "++p;" * 3000 + "} }"),
    ],
    ids=["no step", "no step in all", "long sum", "long table", "squares", "unrolled", "dead code"],
)
def test_strange_texts_end_soon(
    signature: Signature, kernel: Kernels, builder: Builder, body: str, before: str
) -> None:
    found = collect_facts(kernel(body, before), {}, Built(Status.CORRECT), signature, None, builder.target, builder)[
        "syntax"
    ]
    assert found is None or found["tiles"] == 0


def test_a_text_too_large_to_follow_has_no_facts(signature: Signature, kernel: Kernels, builder: Builder) -> None:
    deep = "ROWS { f(x); f(x); f(x); }"
    before = "static void f(const float* p) {}" + "".join(
        f"static void f{k}(const float* p) {{ {'f%s(p);' % (k - 1 if k else '') * 9} }}" for k in range(9)
    )
    body = deep.replace("f(x)", "f8(x)")
    assert syntax_facts(kernel(body, before), {}, signature, builder) is None
