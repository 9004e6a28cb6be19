from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoforge.core import Candidate
from evoforge.emitters import NoveltyGate, Twin, normalised_hash

KERNEL = """// evoforge: param TILE = 16 in {8, 16, 32}
// evoforge: param UNROLL = 2 in {1, 2, 4}
// evoforge: require TILE * UNROLL <= 64
#include <evoforge.h>
#define ROWS EVO_SIZE(in0, 0)
#define SQUARE(v) ((v) * (v))
template <typename T> static inline T twice(T value) { return value + value; }
struct State { float sum; int64_t count; };
// the entry point
extern "C" int evo_run(const evo_call* call) {
    const float* x = EVO_IN(float, 0);
    float* y = EVO_OUT(float, 0);
    State state = {0.f, 0};
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < ROWS; i += TILE) {
        alignas(64) float buffer[TILE];
        auto add = [&](float a) { return a + 1.f; };
        for (int64_t j = 0; j < TILE; ++j) buffer[j] = SQUARE(x[i + j]);
        for (int64_t j = 0; j < TILE; ++j) y[i + j] = add(twice(buffer[j]));
        state.count += 1;
    }
    return 0;
}
"""


def renamed(**names: str) -> str:
    import re

    source = KERNEL
    for old, new in names.items():
        source = re.sub(rf"\b{old}\b", new, source)
    return source


def test_comments_spacing_and_chosen_names_do_not_matter() -> None:
    same = [
        KERNEL.replace("// the entry point", "/* another // remark */ // and more"),
        KERNEL.replace("    ", "\t").replace(" = ", "=").replace("\n#pragma", "\n\n\n#pragma"),
        renamed(x="source", y="sink", i="row", j="column", buffer="scratch", add="bump", a="q"),
        renamed(TILE="BLOCK", UNROLL="TIMES"),
        renamed(twice="doubled", T="Real", value="v0", State="Acc", sum="total", count="n", state="acc"),
        renamed(ROWS="N_ROWS", SQUARE="SQ", v="w"),
    ]
    assert {normalised_hash(source) for source in [KERNEL, *same]} == {normalised_hash(KERNEL)}
    gate = NoveltyGate()
    gate.add(Candidate("cpp", KERNEL))
    known = Twin(Candidate("cpp", KERNEL).id, "tree")
    assert [gate.twin(Candidate("cpp", source)) for source in same] == [known] * len(same)
    other = KERNEL.replace("a + 1.f", "x[0] + 1.f")
    assert gate.twin(Candidate("cpp", other)) is None
    gate.add(Candidate("cpp", other))
    assert [gate.twin(Candidate("cpp", source)) for source in same] == [known] * len(same)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("SQUARE(x[i + j])", "SQUARE(x[i + i])"),
        ("a + 1.f", "a + 2.f"),
        ("y[i + j] =", "y[i + j] +="),
        ("schedule(static)", "schedule(dynamic)"),
        ("{8, 16, 32}", "{8, 16, 64}"),
        ("TILE = 16", "TILE = 8"),
        ("* UNROLL <= 64", "* UNROLL <= 32"),
        ("EVO_SIZE(in0, 0)", "EVO_SIZE(in0, 1)"),
        ("EVO_OUT(float, 0)", "EVO_OUT(double, 0)"),
        ("((v) * (v))", "((v) + (v))"),
        ("float sum; int64_t count;", "float count; int64_t sum;"),
        ("add(twice(buffer[j]))", "twice(add(buffer[j]))"),
    ],
)
def test_what_changes_the_program_changes_the_hash(old: str, new: str) -> None:
    assert old in KERNEL
    assert normalised_hash(KERNEL.replace(old, new)) != normalised_hash(KERNEL)


def test_a_pragma_between_a_loop_and_its_body_hides_nothing() -> None:
    nested = """int run(float* x, int64_t n) {
        for (int64_t i = 0; i < n; ++i)
            #pragma omp simd \\
                aligned(x : 64)
            for (int64_t j = 0; j < n; ++j) x[i] += j;
        return 0;
    }"""
    other = nested.replace("x", "values").replace("j", "column")
    assert normalised_hash(other) == normalised_hash(nested)
    assert normalised_hash(nested.replace("64)", "32)")) != normalised_hash(nested)
    assert normalised_hash(nested.replace("omp simd", "omp unroll")) != normalised_hash(nested)
    assert normalised_hash(nested.replace("aligned(x", "aligned(n")) != normalised_hash(nested)


def test_scopes_are_told_apart() -> None:
    two = "void f(){ for(int i=0;i<4;++i) g(i); for(int j=0;j<4;++j) g(j); }"
    one = "void f(){ for(int i=0;i<4;++i) g(i); for(int i=0;i<4;++i) g(i); }"
    hidden = "void f(int a){ { int b = 1; g(b); } g(a); }"
    shadow = "void f(int a){ { int a = 1; g(a); } g(a); }"
    other = "void f(int a){ { int b = 1; g(a); } g(a); }"
    assert normalised_hash(one) == normalised_hash(two)
    assert normalised_hash(hidden) == normalised_hash(shadow) != normalised_hash(other)


def test_intrinsics_library_functions_and_the_abi_keep_their_names() -> None:
    def body(call: str) -> str:
        return f"void f(float* p, __m256 v) {{ {call}; }}"

    assert normalised_hash(body("_mm256_stream_ps(p, v)")) != normalised_hash(body("_mm256_store_ps(p, v)"))
    assert normalised_hash("int evo_run(int a);") != normalised_hash("int evo_prepare(int a);")


def test_text_inside_strings_is_not_a_comment() -> None:
    assert normalised_hash('auto a = "x//y";') != normalised_hash('auto a = "x//z";')
    assert normalised_hash('auto a = "x y";') != normalised_hash('auto a = "xy";')


def test_text_that_does_not_parse_is_hashed_without_comments_and_spacing() -> None:
    broken = "int f( { // one\n return ]; }"
    assert normalised_hash(broken) == normalised_hash("int  f( {\n  return ]; /* two */ }")
    assert normalised_hash(broken) != normalised_hash("int g( { return ]; }")
    header = "// evoforge: param A = 1 in {1, 2}\n"
    assert normalised_hash(header + broken) != normalised_hash(header.replace("2}", "4}") + broken)


def test_other_languages_are_hashed_as_they_stand() -> None:
    assert normalised_hash("x = 1  # a", "triton") != normalised_hash("x = 1  # b", "triton")
    assert normalised_hash("int a;", "cpp") != normalised_hash("int a;", "cuda")


@given(st.text(max_size=200))
def test_any_text_has_a_hash(text: str) -> None:
    assert len(normalised_hash(text)) == 64


def test_the_gate_names_the_twin_and_what_gave_it_away() -> None:
    gate, first = NoveltyGate(), Candidate("cpp", KERNEL)
    assert gate.twin(first) is None
    gate.add(first)
    assert gate.twin(first) == Twin(first.id, "id")
    assert gate.twin(Candidate("cpp", renamed(x="in"))) == Twin(first.id, "tree")
    assert gate.twin(Candidate("cpp", KERNEL.replace("1.f", "3.f"))) is None
    assert gate.ids == {first.id}


def test_equal_objects_are_twins_but_a_candidate_is_not_its_own() -> None:
    gate = NoveltyGate()
    one, two = Candidate("cpp", "int a;"), Candidate("cpp", "int b = 1;")
    assert gate.object_twin(one, "cafe") is None
    assert gate.object_twin(one, "cafe") is None
    assert gate.object_twin(two, "cafe") == Twin(one.id, "object")
    assert gate.object_twin(two, "cafe", {"TILE": 8}) is None


@pytest.mark.parametrize(
    "deep", ["return " + "+".join("x" * 3000) + ";", "return " + "(" * 2000 + "x" + ")" * 2000 + ";"]
)
def test_a_text_that_nests_too_deeply_still_has_a_hash(deep: str) -> None:
    assert normalised_hash(f"int f(int x) {{ {deep} }}") == normalised_hash(f"int f(int x) {{ {deep} }} // a note")


def test_copies_are_the_generators_kernels_of_one_code_and_nobody_elses() -> None:
    gate = NoveltyGate()
    known = Candidate("cpp", "// Schedule: tile 2.\n" + KERNEL, genome={"tile": "2"})
    gate.add(known)
    again = Candidate("cpp", "// Schedule: tile 2, rows block.\n" + KERNEL, genome={"tile": "2", "rows": "block"})
    assert gate.copy(again) == known.id
    assert gate.twin(again) == Twin(known.id, "tree")
    other_choices = KERNEL.replace("in {8, 16, 32}", "in {8, 16}")
    assert gate.copy(Candidate("cpp", "// Schedule: tile 2.\n" + other_choices, genome={"tile": "2"})) is None
    text = 'static const char* const text = R"(\n// {}\n)";\n'
    models = [Candidate("cpp", text.replace("{}", word) + KERNEL) for word in ("one", "two")]
    gate.add(models[0])
    assert gate.copy(models[0]) == models[0].id
    assert gate.copy(models[1]) is None, "its comment may be no comment"
