from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from evoforge.errors import MissingToolError
from evoforge.evaluation.facts.object import Function, Instruction, _flow, disassemble, object_facts
from evoforge.paths import include_dir

Kernels = Callable[..., str]

Objects = Callable[..., Path]

COPY = "ROWS COLUMNS(V) put(AT(y), get(AT(x)));"


def test_contiguous_vectors_in_nested_loops(object_of: Objects, kernel: Kernels) -> None:
    found = object_facts(object_of(kernel("PARALLEL" + COPY)))
    assert found is not None
    assert found["depth"] == 2
    assert found["bytes"]["contiguous"] > 10 * found["bytes"]["scalar"]
    assert found["bytes"]["stream"] == found["stream_in_loops"] == found["prefetch_in_loops"] == 0
    assert found["vectors_per_trip"] == 1


def test_scalar_loops(object_of: Objects, kernel: Kernels) -> None:
    body = "ROWS COLUMNS(1) { *AT(y) = *AT(x); evo::one_by_one(); }"
    found = object_facts(object_of(kernel(body)))
    assert found is not None
    assert found["bytes"]["contiguous"] == 0
    assert found["bytes"]["scalar"] > 0


def test_streaming_and_prefetch_count_inside_loops_only(object_of: Objects, kernel: Kernels) -> None:
    inside = object_facts(
        object_of(kernel("ROWS COLUMNS(V) { evo::prefetch(AT(x) + 512); evo::stream(AT(y), get(AT(x))); }"))
    )
    outside = object_facts(object_of(kernel(COPY + "evo::stream(h, get(x)); evo::prefetch(z);")))
    assert inside is not None
    assert outside is not None
    assert inside["stream_in_loops"] > 0
    assert inside["prefetch_in_loops"] > 0
    assert inside["bytes"]["stream"] > 0
    assert outside["stream_in_loops"] == outside["prefetch_in_loops"] == 0


def test_vectors_per_trip_of_a_loop_unrolled_by_hand(object_of: Objects, kernel: Kernels) -> None:
    body = "ROWS COLUMNS(2 * V) { put(AT(y), get(AT(x))); put(AT(y) + V, get(AT(x) + V)); }"
    found = object_facts(object_of(kernel(body)))
    assert found is not None
    assert found["vectors_per_trip"] == 2


def test_independent_accumulators(object_of: Objects, kernel: Kernels) -> None:
    one = "evo::vec s{}; COLUMNS(V) s += get(x + j); y[0] = evo::sum(s);"
    four = """evo::vec s[4] = {}; COLUMNS(4 * V) for (int u = 0; u < 4; ++u) s[u] += get(x + j + u * V);
        y[0] = evo::sum((s[0] + s[1]) + (s[2] + s[3]));"""
    assert [(object_facts(object_of(kernel(body))) or {})["accumulators"] for body in (one, four)] == [1, 4]


def test_tiles_of_the_matrix_unit_are_vectors_and_accumulators(tmp_path: Path) -> None:
    source = tmp_path / "tiles.cpp"
    source.write_text("""#include "evoforge.h"
    extern "C" int evo_run(const evo_call* call) {
        const evo::bf16* a = (const evo::bf16*)call->in[0].data;
        evo::products<32, 2, 1, 1> sums;
        for (int64_t k = 0; k < call->in[0].size[1]; k += evo::deep) evo::multiply(sums, a + k * 32, a + k * 64);
        evo::put_sums(sums, (float*)call->out[0].data, 32);
        return 0;
    }""")
    made = tmp_path / "tiles.o"
    flags = ["-std=gnu++17", "-O3", "-march=sapphirerapids", f"-I{include_dir()}"]
    subprocess.run(["g++", *flags, "-c", str(source), "-o", str(made)], check=True)
    found = object_facts(made)
    assert found is not None
    assert found["accumulators"] == 4
    assert found["bytes"]["contiguous"] >= 10 * 4 * 64, "four tiles are loaded in the loop"
    assert found["bytes"]["gather"] == 0
    functions = (disassemble(made) or {}).values()
    operands = {name for function in functions for one in function.instructions for name in one.operands}
    assert len([name for name in operands if name.startswith("tmm")]) == 6, "hyperthreads share the rest"


def test_a_called_function_is_as_deep_as_its_call(object_of: Objects, kernel: Kernels) -> None:
    before = """__attribute__((noinline)) static void row(const float* a, float* b) {
        for (int64_t j = 0; j < EVO_SIZE(in0, 1); j += V) put(b + j, get(a + j)); }"""
    called = object_facts(object_of(kernel("ROWS row(x + i * N, y + i * N);", before)))
    plain = object_facts(object_of(kernel(COPY)))
    assert called is not None
    assert plain is not None
    assert called["depth"] == plain["depth"] == 2


def test_code_that_evo_run_does_not_reach_is_not_counted(object_of: Objects, kernel: Kernels) -> None:
    before = """extern "C" __attribute__((visibility("default"))) void other(float* p, int64_t n) {
        for (int64_t a = 0; a < n; ++a) for (int64_t b = 0; b < n; ++b)
            for (int64_t c = 0; c < n; c += V) evo::stream(p + c, evo::vec{}); }"""
    found = object_facts(object_of(kernel(COPY, before)))
    assert found is not None
    assert found["depth"] == 2
    assert found["stream_in_loops"] == 0


def test_an_object_without_the_entry_has_no_facts(object_of: Objects, kernel: Kernels) -> None:
    assert object_facts(object_of(kernel(COPY)), entry="evo_walk") is None


def test_functions_are_found_by_name(object_of: Objects, kernel: Kernels) -> None:
    functions = disassemble(object_of(kernel("PARALLEL" + COPY)))
    assert {"evo_run", "evo_workspace", "evo_run._omp_fn.0"} <= functions.keys()


def test_a_missing_disassembler_is_named(object_of: Objects, monkeypatch: pytest.MonkeyPatch, kernel: Kernels) -> None:
    path = object_of(kernel(COPY))
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(MissingToolError, match="binutils"):
        object_facts(path)


def test_padding_behind_a_jump_is_no_way_into_a_loop() -> None:
    def function(*code: tuple[int, str, int | None]) -> Function:
        return Function("f", ".text", [Instruction(at, name, [], None, target) for at, name, target in code])

    # An inner loop that is entered in its middle, over padding; the outer one begins at 1.
    code = ((0, "xor", None), (1, "jmp", 4), (2, "nop", None), (3, "add", None), (4, "cmp", None), (5, "jne", 3))
    found = _flow(function(*code, (6, "jne", 1), (7, "ret", None)))
    assert max(found.depth) == 2


def test_a_chain_of_calls_in_loops_has_facts_that_can_be_printed(object_of: Objects, kernel: Kernels) -> None:
    steps = "".join(rf"f{n}: mov $2, %ecx\n1: call f{n + 1}\n dec %ecx\n jnz 1b\n ret\n" for n in range(4400))
    chain = rf'asm(".text\n{steps} f4400: movups (%rdi), %xmm0\n ret\n");'
    found = object_facts(object_of(kernel('asm volatile("call f0");', chain)))
    assert found is not None
    assert json.loads(json.dumps(found)) == found
    assert found["bytes"]["contiguous"] == 16 * 10**15
