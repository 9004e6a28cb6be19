from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from evoforge.core import Candidate, Kind, Signature, Status, Target
from evoforge.evaluation.build import Builder
from evoforge.evaluation.judge import Judge
from evoforge.evaluation.sanitize import Sanitized, sanitize
from evoforge.evaluation.shared import SharedTensors
from evoforge.evaluation.tasks import load_task
from evoforge.selftest.fixtures import load_fixtures, task_path

Call = Callable[[str], Sanitized]
LOOP = "for (int64_t i = 0; i < 37 * 61; i++) out[i] = a[i] + b[i];"
HONEST = {
    "threads": f"#pragma omp parallel for num_threads(call->threads)\n{LOOP}",
    "own memory": f"float* t = (float*)malloc(8); t[1] = a[1]; free(t); {LOOP}",
    "masked tail": """for (int64_t i = 0; i < 37 * 61; i += 16) {
        __mmask16 m = i + 16 <= 37 * 61 ? 0xffff : (1 << (37 * 61 - i)) - 1;
        __m512 sum = _mm512_add_ps(_mm512_maskz_loadu_ps(m, a + i), _mm512_maskz_loadu_ps(m, b + i));
        _mm512_mask_storeu_ps(out + i, m, sum);
    }""",
}
FAULTS = {
    "reads past its own memory": (
        "float* t = (float*)malloc(40); out[0] = t[(int)a[0] + 9]; free(t);",
        "OUT_OF_BOUNDS",
    ),
    "reads freed memory": ("float* t = (float*)malloc(40); t[1] = a[1]; free(t); out[0] = t[1];", "OUT_OF_BOUNDS"),
    "writes past a table": (
        "static float t[8]; for (int i = 0; i < 9 * a[0]; i++) t[i] = b[i]; out[0] = t[7];",
        "OUT_OF_BOUNDS",
    ),
    "writes past the workspace": ("for (int i = 0; i < 17; i++) ((float*)call->ws)[i] = a[i];", "OUT_OF_BOUNDS"),
    "divides by zero": ("int zero = (int)a[0] - 1; out[0] = 5 / zero;", "CRASH"),
    "says that it is done": (
        'printf("done 0\\n"); fflush(stdout); float* t = (float*)malloc(40); out[0] = t[(int)a[0] + 9]; free(t);',
        "OUT_OF_BOUNDS",
    ),
    "frees twice": ('void* p = malloc(8); free(p); __asm__ volatile("" : "+r"(p)); free(p);', "VIOLATION"),
}
MASKED_PAST = "for (int64_t i = 0; i < 37 * 61; i += 16) _mm512_mask_storeu_ps(out + i, 0xffff, _mm512_set1_ps(1));"


def kernel_of(body: str) -> str:
    return f"""#include "evoforge.h"
#include <stdio.h>
#include <stdlib.h>
extern "C" int64_t evo_workspace(const evo_call*) {{ return 64; }}
extern "C" int evo_run(const evo_call* call) {{
    const float *a = (const float*)call->in[0].data, *b = (const float*)call->in[1].data;
    float* out = (float*)call->out[0].data;
    (void)b;
    {body}
    return 0;
}}
"""


def needs_avx512(body: str) -> None:
    if "_mm512" in body and "avx512f" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this processor has no AVX-512")


@pytest.fixture
def called(builder: Builder, add_signature: Signature, add_sets: list[SharedTensors]) -> Call:
    for array in add_sets[0].arrays():
        array[...] = 1

    def call(body: str) -> Sanitized:
        needs_avx512(body)
        return sanitize(kernel_of(body), {}, add_signature, add_sets[:1], builder, threads=2)

    return call


@pytest.mark.parametrize("body", HONEST.values(), ids=HONEST)
def test_an_honest_kernel_is_clean(called: Call, body: str) -> None:
    assert called(body) == Sanitized(None)


@pytest.mark.parametrize(("body", "status"), FAULTS.values(), ids=FAULTS)
def test_a_fault_inside_its_own_memory_is_named(called: Call, body: str, status: str) -> None:
    found = called(body)
    assert found.status == status
    assert found.reason.startswith("sanitizer: ")


def test_a_masked_store_past_the_end_is_seen_with_its_line(called: Call) -> None:
    found = called(MASKED_PAST)
    assert found.status is Status.OUT_OF_BOUNDS
    assert re.fullmatch(r"sanitizer: heap-buffer-overflow at line 9", found.reason)


def test_the_sanitizer_does_not_announce_itself(called: Call) -> None:
    assert called("\n#ifndef __SANITIZE_ADDRESS__\n out[2300] = 1;\n#endif\n").status is Status.OUT_OF_BOUNDS


def test_what_does_not_come_back_is_no_verdict(called: Call) -> None:
    found = called("_Exit(0);")
    assert found.status is None and "did not come back" in found.reason


def test_a_build_that_cannot_be_instrumented_is_no_verdict(
    builder: Builder, add_signature: Signature, add_sets: list[SharedTensors]
) -> None:
    found = sanitize("int evo_run(", {}, add_signature, add_sets[:1], builder, threads=1)
    assert found.status is None and "BUILD_ERROR" in found.reason


def test_a_would_be_elite_with_a_fault_is_refused(one_thread: Target) -> None:
    """Right answers, a trial that passes, and a read of freed memory."""
    source = load_fixtures("honest/add_malloc")[0].candidate.source
    bad = re.sub(r"free\((\w+)\);", r"free(\1); volatile float kept = *(volatile float*)\1; (void)kept;", source)
    assert bad != source
    with Judge(load_task(str(task_path("add"))), one_thread, seed=1) as judge:
        judge.open()
        assert judge.verify(Candidate("cpp", bad), {}).status is Status.UNMEASURED
        found = judge.confirm(Candidate("cpp", bad), {}, processes=1, kind=Kind.CONFIRM, sanitized=True)
    assert found.status is Status.OUT_OF_BOUNDS, found.reason
    assert "heap-use-after-free" in found.reason
