from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evoforge.core import Signature, Status, TensorSpec
from evoforge.evaluation.build import Builder
from evoforge.evaluation.facts import collect_facts
from evoforge.evaluation.facts.trace import trace_facts

Kernels = Callable[..., str]

ROWS, COLUMNS = 96, 4096  # of the workload in conftest.py
SIZE = ROWS * COLUMNS * 4
LINES = SIZE // 64


@pytest.fixture(scope="module")
def trace(builder: Builder, signature: Signature, kernel: Kernels) -> Any:
    def run(body: str, **params: int) -> Any:
        found = trace_facts(kernel(body), params, signature, builder)
        assert found is not None
        return found

    return run


def tensor(name: str, *shape: int) -> TensorSpec:
    return TensorSpec(name, shape, (16, 1)[-len(shape) :], "f32")


SWEEP = "PARALLEL ROWS COLUMNS(V) "


def test_one_sweep_misses_each_line_once(trace: Any) -> None:
    found = trace(SWEEP + "put(AT(y), get(AT(x)) + get(w + j));")
    x, w, y = (found["tensors"][name] for name in ("in0", "cst0", "out0"))
    assert (x["lines"], x["read_misses"], x["read_bytes"], x["write_bytes"]) == (LINES, LINES, SIZE, 0)
    assert (y["lines"], y["write_misses"], y["write_bytes"], y["stream_bytes"]) == (LINES, LINES, SIZE, 0)
    assert w["read_bytes"] == SIZE  # once per row …
    assert w["read_misses"] == w["lines"] == COLUMNS * 4 // 64  # … from the cache
    assert found["tensors"]["in1"]["lines"] == 0
    assert found["cache_bytes"] == 1 << 20


def test_a_second_sweep_misses_again(trace: Any) -> None:
    copy = "put(AT(y), get(AT(x)));"
    found = trace(SWEEP + copy + SWEEP + copy.replace("(y)", "(h)"))
    assert found["tensors"]["in0"]["read_misses"] == 2 * LINES


def test_streaming_stores_are_seen_and_are_no_second_read(trace: Any) -> None:
    y = trace(SWEEP + "evo::stream(AT(y), get(AT(x)));")["tensors"]["out0"]
    assert y["stream_bytes"] == y["write_bytes"] == SIZE
    assert y["write_misses"] == y["lines"] == LINES


def test_what_was_streamed_is_not_in_the_cache(trace: Any, builder: Builder) -> None:
    body = SWEEP + "{ evo::stream(AT(y), get(AT(x))); put(AT(h), get(AT(y))); }"
    # Where a line is several vectors, streaming the next one puts it out again.
    assert trace(body)["tensors"]["out0"]["read_misses"] == SIZE // builder.target.vector_bytes


def test_masked_accesses_count_only_what_takes_part(trace: Any) -> None:
    body = 'evo::first part{3}; asm volatile("" : "+r"(part.n)); ROWS store(y + i * N, load(x + i * N, part), part);'
    found = trace(body)["tensors"]
    assert found["in0"]["read_bytes"] == found["out0"]["write_bytes"] == ROWS * 12


def test_gathers_and_prefetches_are_counted(trace: Any) -> None:
    found = trace("PARALLEL ROWS { evo::prefetch(z + i * N); put(y + i * N, evo::gather(x + i * N, 32, all)); }")
    assert found["prefetches"] == found["prefetched_lines"] == ROWS
    assert found["tensors"]["in0"]["read_misses"] >= ROWS * 4
    assert found["tensors"]["in1"]["lines"] == 0  # prefetching is not reading


def test_copies_of_the_c_library_are_counted(trace: Any) -> None:
    found = trace("PARALLEL ROWS { volatile int64_t n = N * 4; __builtin_memcpy(y + i * N, x + i * N, n); }")
    assert found["tensors"]["in0"]["read_bytes"] == found["tensors"]["out0"]["write_bytes"] == SIZE


def test_a_row_buffer_is_staged_and_a_stored_intermediate_is_written_back(trace: Any) -> None:
    rows = trace("""ROWS { alignas(64) float row[N]; float total = 0;
        for (int64_t j = 0; j < N; ++j) { row[j] = x[i * N + j] + z[i * N + j]; total += row[j]; evo::one_by_one(); }
        for (int64_t j = 0; j < N; ++j) { y[i * N + j] = row[N - 1 - j] * total; evo::one_by_one(); } }""")["scratch"]
    whole = trace(SWEEP + "put(AT(ws), get(AT(x)));" + SWEEP + "put(AT(y), get(AT(ws)));")["scratch"]
    assert rows["written_back_lines"] < 2 * COLUMNS * 4 / 64
    assert rows["staged_bytes"] > 1.8 * SIZE * (ROWS - 1) / ROWS
    assert whole["written_back_lines"] == pytest.approx(LINES, rel=0.01)
    assert whole["staged_bytes"] < 0.01 * SIZE


@pytest.mark.parametrize(
    "body",
    ["for (;;) evo::one_by_one();", "*(volatile int*)8 = 1;", "return 1;", "__builtin_exit(0);"],
    ids=["endless", "crashing", "declining", "exiting"],
)
def test_a_kernel_that_does_not_finish_its_call_has_no_trace(builder: Builder, body: str, kernel: Kernels) -> None:
    small = Signature(
        (tensor("in0", 4, 16), tensor("in1", 4, 16)),
        (tensor("cst0", 16),),
        (tensor("out0", 4, 16), tensor("out1", 4, 16)),
    )
    assert trace_facts(kernel(body), {}, small, builder, seconds=1) is None


def test_what_does_not_build_or_is_too_large_has_no_trace(
    builder: Builder, signature: Signature, kernel: Kernels
) -> None:
    huge = TensorSpec("in0", (1 << 29,), (1,), "f32")
    assert trace_facts("int evo_run(", {}, signature, builder) is None
    assert trace_facts(kernel(""), {}, Signature((huge,), (), (huge,)), builder) is None


def test_a_kernel_cannot_write_its_own_report(builder: Builder, signature: Signature, kernel: Kernels) -> None:
    body = 'puts("{}"); fflush(stdout);'
    found = trace_facts("#include <stdio.h>\n" + kernel(body), {}, signature, builder)
    assert found is not None
    assert found["tensors"]["out0"]["lines"] == 0


ONE = Signature((), (), (TensorSpec("out0", (2,), (1,), "f32"),))
# No condition of the preprocessor: what a name expands to tells the builds apart.
TELLS = """#include "evoforge.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#define TEXT(...) #__VA_ARGS__
#define EXPANDED(...) TEXT(__VA_ARGS__)
constexpr bool traced = sizeof(EXPANDED(__builtin_prefetch(0))) != sizeof("__builtin_prefetch(0)");
extern "C" int evo_run(const evo_call* call) {
    EVO_OUT(float, 0)[0] = 1;
    if constexpr (traced) { %s }
    return 0;
}
"""


@pytest.fixture
def unscreened(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what stands behind the screen."""
    monkeypatch.setattr("evoforge.evaluation.build.screen_object", lambda path, **_: None)


def attack(report: str) -> str:
    return TELLS % f"const char said[] = {report}; (void)!write(100, said, sizeof said - 1); _exit(0);"


SHARED = dict.fromkeys(("read_bytes", "write_bytes", "stream_bytes", "read_misses", "write_misses", "lines"), 0)
FORGED = {
    "tensors": {"out0": {**SHARED, "bytes": 8, "gather_bytes": 0}},
    "scratch": {**SHARED, "written_back_lines": 0, "staged_bytes": 0, "staged_lines": 0},
    "prefetches": 0,
    "prefetched_lines": 0,
}
REPORTS = {
    "no tensors": r'"{}"',
    "no text": r'"\xff\xfe"',
    "no row": r'"{\"tensors\": {\"out0\": 7}}"',
    "forged": f'R"({json.dumps(FORGED)})"',
}


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
def test_what_a_kernel_makes_of_the_report_is_no_fact(builder: Builder, report: str, unscreened: None) -> None:
    source = attack(report)
    built = builder.build(source, {}, ONE)
    assert built.status is Status.CORRECT
    assert collect_facts(source, {}, built, ONE, None, builder.target, builder)["trace"] is None


def test_a_report_without_end_is_cut(builder: Builder, unscreened: None) -> None:
    body = "static char said[1 << 20]; for (int i = 0; i < 1 << 14; ++i) (void)!write(100, said, sizeof said);"
    assert trace_facts(TELLS % body, {}, ONE, builder) is None


@pytest.mark.parametrize("said", ["", "[", "[" * 100_000, "1" * 5000, '{"tensors": []}', "NaN"])
def test_what_is_no_report_is_no_trace(builder: Builder, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setattr("evoforge.evaluation.facts.trace._run", lambda *_: said.encode())
    assert trace_facts(TELLS % f"/* {said[:9]} */", {}, ONE, builder) is None


def test_a_traced_object_is_screened(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    source = attack('"screened"')
    assert builder.build(source, {}, ONE).status is Status.CORRECT, "it calls nothing there"
    monkeypatch.setattr("evoforge.evaluation.facts.trace._run", lambda *_: pytest.fail("ran"))
    assert trace_facts(source, {}, ONE, builder) is None


def test_a_traced_kernel_starts_nothing_and_writes_nothing(builder: Builder, tmp_path: Path, unscreened: None) -> None:
    source = f"""#include "evoforge.h"
#include <stdio.h>
#include <unistd.h>
int evo_run(const evo_call* call) {{
    FILE* file = fopen("{tmp_path}/written", "w");
    return file || CALL != -1 ? 2 : 0;
}}
"""
    assert trace_facts(source.replace("CALL", 'chdir("/")'), {}, ONE, builder) is not None
    assert trace_facts(source.replace("CALL", "getpid()"), {}, ONE, builder) is None  # it can tell us
    assert not (tmp_path / "written").exists()


def test_traces_are_kept_on_disk(
    builder: Builder, signature: Signature, monkeypatch: pytest.MonkeyPatch, kernel: Kernels
) -> None:
    source = kernel(SWEEP + "put(AT(y), get(AT(x)));")
    first = trace_facts(source, {}, signature, builder)

    def refuse(*_: object) -> None:
        raise AssertionError("ran again")

    monkeypatch.setattr("evoforge.evaluation.facts.trace._run", refuse)
    assert trace_facts(source, {}, signature, builder) == first
