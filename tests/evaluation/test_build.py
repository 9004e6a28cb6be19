from __future__ import annotations

import contextlib
import ctypes
import os
import re
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from evoforge.core import Signature, Status, Target
from evoforge.errors import MissingToolError, UsageError
from evoforge.evaluation.build import Builder
from evoforge.evaluation.sandbox import reached_layers
from evoforge.evaluation.screen import ElfObject
from evoforge.paths import cache_dir, include_dir

HEAD = '#include "evoforge.h"\n'
PROBE = HEAD + 'extern "C" __attribute__((visibility("default"))) long probe() { return %s; }\n'
CHUNK = {"CHUNK": 16}


def probed(builder: Builder, expression: str, params: dict[str, int], signature: Signature | None) -> int:
    built = builder.build(PROBE % expression, params, signature)
    assert built.status is Status.CORRECT, built.log
    probe = ctypes.CDLL(str(built.library_path)).probe
    probe.restype = ctypes.c_long
    return int(probe())


def test_a_kernel_builds_once(builder: Builder, kernel: Callable[[str], str], add_signature: Signature) -> None:
    first = builder.build(kernel("add"), CHUNK, add_signature)
    assert first.status is Status.CORRECT
    assert first.object_path is not None
    assert first.library_path is not None
    changed = first.library_path.stat().st_mtime_ns
    again = builder.build(kernel("add"), CHUNK, add_signature)
    assert again.library_path == first.library_path
    assert again.library_path.stat().st_mtime_ns == changed
    assert again.text_hash == first.text_hash != ""
    other = builder.build(kernel("add"), {"CHUNK": 64}, add_signature)
    assert other.library_path != first.library_path


def test_clang_is_refused(one_thread: Target, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = tmp_path / "c++"
    other.write_text("#!/bin/sh\necho 'Ubuntu clang version 18.1.3'\n")
    other.chmod(0o755)
    monkeypatch.setenv("CXX", str(other))
    with pytest.raises(MissingToolError, match=r"expected gcc.*clang version 18.*unset CXX"):
        Builder(one_thread)


def test_parameters_sizes_and_strides_are_literals(builder: Builder, add_signature: Signature) -> None:
    assert probed(builder, "TILE * 1000 + UNROLL", {"TILE": 32, "UNROLL": -4}, None) == 31996
    assert probed(builder, "EVO_SIZE(in1, 0) * 1000 + EVO_STRIDE(out0, 0)", {}, add_signature) == 37061
    assert probed(builder, "sizeof(char[EVO_SIZE(in0, 1)])", {}, add_signature) == 61


def test_a_range_build_reads_sizes_from_the_call(
    builder: Builder, kernel: Callable[[str], str], add_signature: Signature
) -> None:
    ranged = builder.build(kernel("add"), CHUNK, add_signature, baked=False)
    assert ranged.status is Status.CORRECT
    constant = 'extern "C" int evo_run(const evo_call* call) { static char x[EVO_SIZE(in0, 1)]; return x[0]; }'
    assert builder.build(HEAD + constant, {}, add_signature).status is Status.CORRECT
    assert builder.build(HEAD + constant, {}, add_signature, baked=False).status is Status.BUILD_ERROR


def test_a_missing_dimension_is_the_kernels_error(builder: Builder, add_signature: Signature) -> None:
    text = HEAD + 'extern "C" int evo_run(const evo_call* call) { return EVO_SIZE(in0, 2); }'
    built = builder.build(text, {}, add_signature)
    assert built.status is Status.BUILD_ERROR
    assert "EVO_SIZE_in0_2" in built.reason
    assert built.library_path is None


def test_what_the_compiler_says_is_short_and_names_no_path(builder: Builder, tmp_path: Path) -> None:
    built = builder.build(HEAD + "\n".join(f"unknown_{i} x{i};" for i in range(500)), {}, None)
    assert built.status is Status.BUILD_ERROR
    assert "kernel.cpp:2" in built.reason
    assert 0 < len(built.log) < 4200
    assert str(cache_dir()) not in built.log
    assert str(Path.home()) + "/" not in built.log


CLEANUP = """
struct Guard { ~Guard() { asm volatile("" ::: "memory"); } };
extern "C" int evo_run(const evo_call* call) {
    Guard guard;
    ((void (*)(const void*))call->ws)(call);  // may throw, for all that the compiler knows
    return 0;
}
"""


def test_something_to_clean_up_is_no_state(builder: Builder, add_signature: Signature) -> None:
    """The compiler leaves the pointer to the exceptions' personality writable; linked, it must not be."""
    built = builder.build(HEAD + CLEANUP, {}, add_signature)
    assert built.status is Status.CORRECT
    assert not built.stateful
    headers = subprocess.run(["readelf", "-lW", str(built.library_path)], capture_output=True, text=True, check=True)
    sealed = next(line for line in headers.stdout.splitlines() if "GNU_RELRO" in line).split()
    names = subprocess.run(["readelf", "-SsW", str(built.library_path)], capture_output=True, text=True, check=True)
    pointer = next(line for line in names.stdout.splitlines() if "DW.ref.__gxx_personality_v0" in line).split()
    start, length = int(sealed[2], 16), int(sealed[5], 16)
    assert start <= int(pointer[1], 16) < start + length


def test_the_screens_refuse_before_linking(builder: Builder, kernel: Callable[[str], str]) -> None:
    assert builder.build('#include "/etc/passwd"', {}, None).status is Status.SCREENED
    built = builder.build(HEAD + "__attribute__((constructor)) void f() { __builtin_trap(); }", {}, None)
    assert built.status is Status.SCREENED
    assert built.library_path is None


def test_bytes_that_only_the_linker_or_the_loader_writes_are_no_way_past_the_screen(builder: Builder) -> None:
    run = 'extern "C" int evo_run(const evo_call*) { return 0; }\n'
    distance = '.section .text.a,\\"ax\\"\\n.long far - .\\n.skip 0x50b\\n.section .text.b,\\"ax\\"\\nfar: ret\\n.text'
    built = builder.build(f'{HEAD}asm("{distance}");\n{run}', {}, None)
    assert built.status is Status.SCREENED and "system call" in built.reason
    written = builder.build(f'{HEAD}{run}asm(".text\\n.quad evo_run");', {}, None)
    assert written.status is Status.BUILD_ERROR


@pytest.mark.parametrize("how", ["flag", "pragma"])
def test_linking_never_changes_the_float_mode_of_the_loader(builder: Builder, how: str) -> None:
    text = HEAD + 'extern "C" int evo_run(const evo_call*) { return 0; }'
    flags = ("-ffast-math",) if how == "flag" else ()
    pragma = '#pragma GCC optimize("fast-math")\n' if how == "pragma" else ""
    built = builder.build(pragma + text, {}, None, extra_flags=flags)
    assert built.library_path is not None
    assert "set_fast_math" not in {symbol.name for symbol in ElfObject(built.library_path.read_bytes()).symbols}


def test_a_compiler_that_does_not_end_is_stopped(builder: Builder) -> None:
    endless = "constexpr long f(long n) { long s = 0; for (long i = 0; i < n; i++) s += i; return s; }\n"
    text = HEAD + endless + "".join(f"static_assert(f({20_000_000 + i}) > 0);\n" for i in range(8))
    assert builder.build(text, {}, None, timeout_s=0.5).status is Status.BUILD_TIMEOUT
    assert not list((cache_dir() / "objects").glob("tmp-*"))


def test_a_gigabyte_object_is_stopped(builder: Builder) -> None:
    built = builder.build(HEAD + "extern char big[]; char big[1 << 30] = {1, 2, 3};", {}, None)
    assert built.status is Status.BUILD_ERROR


@pytest.mark.parametrize(
    "text",
    [
        '_Pragma("GCC dependency \\"/etc/passwd\\"")',
        'asm(".inc" "bin \\"/etc/passwd\\"");',
        'asm(".inc" "lude \\"/etc/passwd\\"");',
        'static_assert(__has_include("/etc/passwd"));',
        'static_assert(__has_include("/var/../etc/passwd"));',
    ],
)
def test_the_compiler_reads_nothing_else(builder: Builder, text: str) -> None:
    if "landlock" not in reached_layers():
        pytest.skip("needs landlock")
    assert builder.build(HEAD + text, {}, None).status in (Status.BUILD_ERROR, Status.SCREENED)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_is_said_and_nothing_is_kept(
    one_thread: Target, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, builder: Builder
) -> None:
    builder.build(HEAD, {}, None)  # the header and the launcher are in the cache now
    monkeypatch.delenv("EVOFORGE_CACHE")
    monkeypatch.setenv("EVOFORGE_CACHE", str(tmp_path))
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", str(tmp_path)], check=False).returncode:
        pytest.skip("needs leave to mount")
    try:
        small = Builder(one_thread)
        assert small.build(HEAD, {}, None).status is Status.CORRECT
        filler = tmp_path / "filler"
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 16))
        built = small.build(HEAD + "int x;", {}, None)
        assert built.status is Status.HARNESS_ERROR
        assert "EVOFORGE_CACHE" in built.reason
        filler.unlink()
        assert small.build(HEAD + "int x;", {}, None).status is Status.CORRECT
        assert not list((tmp_path / "objects").glob("tmp-*"))
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_a_kernel_cannot_make_the_disk_look_full(builder: Builder) -> None:
    assert builder.build(HEAD + "#error No space left on device\n", {}, None).status is Status.BUILD_ERROR


def test_parallel_builds_of_one_text_agree(builder: Builder, add_signature: Signature) -> None:
    text = HEAD + 'extern "C" int evo_run(const evo_call*) { return 0; } // parallel'
    with ThreadPoolExecutor(4) as pool:
        built = list(pool.map(lambda _: builder.build(text, {}, add_signature), range(4)))
    assert {item.status for item in built} == {Status.CORRECT}
    assert len({item.library_path for item in built}) == 1


def test_a_callers_header_comes_first(builder: Builder, tmp_path: Path) -> None:
    header = tmp_path / "before.h"
    header.write_text('#pragma once\n#include "evoforge.h"\n#define ANSWER 42\n')
    flags = ("-include", str(header))
    built = builder.build(PROBE % "ANSWER", {}, None, extra_flags=flags)
    assert built.status is Status.CORRECT, built.log
    header.write_text('#pragma once\n#include "evoforge.h"\n#define ANSWER 43\n')
    changed = builder.build(PROBE % "ANSWER", {}, None, extra_flags=flags)
    assert changed.text_hash != built.text_hash


def test_no_compiler_is_said_with_the_mend(one_thread: Target, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(MissingToolError, match="apt-get install"):
        Builder(one_thread)


def test_a_cache_that_cannot_be_written_is_said(
    one_thread: Target, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EVOFORGE_CACHE", str(tmp_path / "file"))
    with pytest.raises(UsageError, match="EVOFORGE_CACHE"):
        Builder(one_thread)


def test_a_missing_return_is_named_and_warnings_are_not(builder: Builder) -> None:
    found = builder.build(HEAD + 'extern "C" int evo_run(const evo_call*) { int x = 1e99; (void)x; }\n', {}, None)
    assert found.status is Status.BUILD_ERROR and "return" in found.reason and "warning:" not in found.log


def test_any_upper_case_word_may_be_a_parameter(builder: Builder) -> None:
    words = {word for path in include_dir().glob("*.h") for word in re.findall(r"\b[A-Z][A-Z0-9_]*\b", _code(path))}
    taken = {word for word in words if not word.startswith(("EVO", "INT32_M"))}
    assert not taken, "a parameter of that name would change the header"
    assert probed(builder, "T + W + ROWS", {"T": 1, "W": 2, "ROWS": 4}, None) == 7


def _code(header: Path) -> str:
    text = re.sub(r'//.*|/\*.*?\*/|extern "C"', "", header.read_text(encoding="utf-8"))
    return re.sub(r"#\s*(pragma|if|elif|ifdef|ifndef).*", "", text)


def test_a_symbol_of_any_length_and_bytes_makes_a_short_reason(builder: Builder) -> None:
    call = HEAD + 'extern "C" void odd() asm("NAME"); extern "C" int evo_run(const evo_call*) { odd(); return 0; }'
    for name in ("o" * 900_000, r"o\xff\xfe"):
        built = builder.build(call.replace("NAME", name), {}, None)
        assert built.status is Status.SCREENED
        assert "calls o" in built.reason and len(built.reason) <= 300
    noise = "#pragma message " + '"' + "x" * 500_000 + '"\n#error \udcff\udcfe \x1b[31m\n'
    built = builder.build(HEAD + noise, {}, None)
    assert built.status is Status.BUILD_ERROR
    assert "#error" in built.reason and len(built.log) < 5000
