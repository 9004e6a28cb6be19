from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from evoforge.evaluation.screen import ElfObject, screen_object, screen_source
from evoforge.evaluation.targets import find_compiler


def compiled(folder: Path, text: str, *flags: str) -> Path:
    source, output = folder / "kernel.cpp", folder / "kernel.o"
    source.write_text(text)
    command = [
        find_compiler(),
        "-std=gnu++17",
        "-O2",
        "-fPIC",
        "-fopenmp",
        *flags,
        "-c",
        str(source),
        "-o",
        str(output),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return output


@pytest.mark.parametrize(
    "text",
    [
        '#include "evoforge.h"\n#include <algorithm>\n#  include <bits/stdc++.h>\nint x;',
        '// #include "/etc/passwd"\n/* #include "../secret.h" */ int x;',
        "#line 7\n#line 7 \"kernel.cpp\"\n# 1 \"kernel.cpp\" 2\nint x = 1'000'000; char c = '\"'; // it's fine",
        '#pragma omp parallel\n#pragma GCC unroll 4\n#define INCLUDE 1\nconst char* s = "/etc/passwd";',
        "#if defined(__AVX512F__) && __has_builtin(__builtin_prefetch) && __has_attribute(no_sanitize)\n#endif",
        "#define PREFETCH(p) __builtin_prefetch(p)\n#define UNSEEN __attribute__((no_sanitize_address))",
    ],
)
def test_honest_text_passes(text: str) -> None:
    assert screen_source(text) is None
    assert screen_source(text.replace("\n", "\r\n")) is None and screen_source(text.replace("\n", "\f\n")) is None


@pytest.mark.parametrize(
    "text",
    [
        '#include "/etc/passwd"',
        "#include </etc/passwd>",
        '#include "../../secrets.h"',
        '#  \\\ninclude "/etc/passwd"',
        '%:include "/etc/passwd"',
        '\f#include "/etc/passwd"',
        '#\vinclude "/etc/passwd"',
        'int a;\r#include "/etc/passwd"\r',
        '#inc\\\f\nlude "/etc/passwd"',
        '#/* */include "/etc/passwd"',
        '#define FILE "/etc/passwd"\n#include FILE',
        '#if __has_include(<x/*y>)\n#endif\n#include "/etc/passwd"\n// */',
        '#include_next "stdio.h"',
        '#import "/etc/passwd"',
        '#pragma GCC dependency "/etc/passwd"',
        'int f() { _Pragma("GCC dependency \\"/etc/passwd\\"") return 0; }',
        'const char* a = "/*";\n#include "/etc/passwd"\nconst char* b = "*/";',
        'const char* a = R"x(" /* )x";\n#include "/etc/passwd"\nconst char* b = "*/";',
        'char a = \'"\'; const char* b = "/*";\n#include "/etc/passwd"\nconst char* c = "*/";',
        '#line 1 "/etc/passwd"',
        '# 1 "../secret.h"',
        "#line 1 FILE",
        'asm(".incbin \\"/etc/passwd\\"");',
        "const char secret[] = {\n#embed </etc/passwd>\n};",
        "int x;\0",
        "// " + "x" * (2 << 20),
    ],
)
def test_text_that_reads_other_files_is_refused(text: str) -> None:
    assert screen_source(text)


@pytest.mark.parametrize(
    "text",
    [
        "#include <cmath>\n#include <cstring>\n#include <vector>\n#include <algorithm>\n"
        "int run(float* x, int n) { std::vector<float> y(n); std::sort(y.begin(), y.end()); memcpy(x, y.data(), 4 * n);"
        "\n#pragma omp parallel for\nfor (int i = 0; i < n; i++) x[i] = expf(sinf(x[i]));\nreturn 0; }",
        "#include <thread>\n#include <future>\n#include <pthread.h>\nint run(pthread_t* t, void* (*f)(void*)) {\n"
        "std::thread one([] {}); one.join(); pthread_create(t, 0, f, 0); pthread_join(*t, 0);\n"
        "return std::async(std::launch::async, [] { return 1; }).get(); }",
        "#include <omp.h>\nint run(float* x, int n) { float s = 0;\n"
        "#pragma omp parallel for schedule(guided) reduction(+:s)\nfor (int i = 0; i < n; i++) s += x[i];\n"
        "#pragma omp parallel sections\n{\n#pragma omp section\nx[0] = s;\n"
        "#pragma omp section\nx[1] = s;\n}\n#pragma omp parallel\n#pragma omp single\n#pragma omp taskloop\n"
        "for (int i = 0; i < n; i++) {\n#pragma omp critical(a)\nx[i] = omp_get_thread_num();\n}\n"
        "#pragma omp parallel for ordered\nfor (int i = 0; i < n; i++) {\n#pragma omp ordered\nx[i]++;\n}\nreturn 0; }",
        "#include <sstream>\nfloat run() { std::stringstream s; s << 2.5f; float x; s >> x; return x; }",
        # 0f 05 inside a constant is not a system call
        "long run() { return 0x050f11223344; }",
        "static int counter; int run() { return counter++; }",
        # a name of its own that looks like libc's
        "namespace mine { __attribute__((noinline)) int open(int x) { return x + 1; } }\n"
        "int run(int x) { return mine::open(x); }",
    ],
)
def test_honest_objects_pass(tmp_path: Path, text: str) -> None:
    assert screen_object(compiled(tmp_path, text)) is None


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('int run() { int r; asm volatile("syscall" : "=a"(r) : "a"(39)); return r; }', "system call"),
        ('int run() { int r; asm volatile("int $0x80" : "=a"(r) : "a"(20)); return r; }', "system call"),
        ('int run() { asm volatile("sysenter"); return 0; }', "system call"),
        ("int x; __attribute__((constructor)) void early() { x = 1; }", ".init_array"),
        ("int x; __attribute__((destructor)) void late() { x = 1; }", ".fini_array"),
        ("#include <vector>\nstd::vector<int> table(100); int run() { return table[3]; }", ".init_array"),
        ("#include <iostream>\nint run() { return 0; }", ".init_array"),
        (
            'typedef int f(); static int one() { return 1; } extern "C" f* pick() { return one; }\n'
            'extern "C" int chosen() __attribute__((ifunc("pick")));',
            "chosen",
        ),
        ('#include <dlfcn.h>\nvoid* run() { return dlopen("libc.so.6", 2); }', "dlopen"),
        ("#include <unistd.h>\nint run() { return fork(); }", "fork"),
        ('#include <unistd.h>\nint run() { return execl("/bin/sh", "sh", nullptr); }', "execl"),
        ('#include <stdlib.h>\nint run() { return system("true"); }', "system"),
        ("#include <sys/socket.h>\nint run() { return socket(2, 1, 0); }", "socket"),
        ("#include <stdlib.h>\nint run() { exit(0); }", "exit"),
        ('#include <stdio.h>\nvoid* run() { return fopen("/etc/passwd", "r"); }', "fopen"),
        ('#include <stdlib.h>\nchar* run() { return getenv("HOME"); }', "getenv"),
        ("#include <sys/mman.h>\nint run(void* p) { return mprotect(p, 4096, 7); }", "mprotect"),
        ("#include <signal.h>\nvoid run() { signal(11, SIG_IGN); }", "signal"),
        ("#include <thread>\nvoid run() { std::thread t([] {}); t.detach(); }", "thread"),
        ("#include <pthread.h>\nvoid run(pthread_t t) { pthread_detach(t); }", "pthread_detach"),
        (r'asm(".section .both,\"awx\"\n nop\n .text"); int run() { return 0; }', ".both"),
        ("#include <time.h>\nlong run() { timespec t; clock_gettime(1, &t); return t.tv_nsec; }", "clock_gettime"),
        (
            "#include <chrono>\nlong run() { return std::chrono::steady_clock::now().time_since_epoch().count(); }",
            "chrono",
        ),
        *[
            (f'extern "C" void {name}(void (*)(void*), void*, unsigned); void run() {{ {name}(0, 0, 4); }}', name)
            for name in (
                "GOMP_parallel_start",
                "GOMP_parallel_loop_dynamic_start",
                "GOMP_parallel_sections_start",
                "GOMP_parallel_end",
                "GOMP_target_ext",
                "GOACC_parallel_keyed",
                "acc_async_wait",
            )
        ],
        ('#include <fstream>\nvoid run() { std::ofstream("/tmp/x") << 1; }', ""),
        ('extern "C" void __gmon_start__() {} int run() { return 0; }', "__gmon_start__"),
        ('extern "C" int fexecve(int, char**, char**); int run(char** p) { return fexecve(0, p, p); }', "fexecve"),
        ('extern "C" int isatty(int); int run() { return isatty(0); }', "isatty"),
        # No relocations of another section's, but a linker joins them to those that the loader obeys.
        ('asm(".section .rela.text.more,\\"\\"\\n.quad 0, 37, 0\\n.text"); int run() { return 0; }', ".rela.text.more"),
        # What is not a vector function of libmvec's, only named like one: data that libstdc++ can write to.
        ('extern "C" long _ZGVNSt7collateIcE2idE; long run() { return _ZGVNSt7collateIcE2idE++; }', "_ZGVNSt7collate"),
    ],
)
def test_dangerous_objects_are_refused_by_name(tmp_path: Path, text: str, named: str) -> None:
    reason = screen_object(compiled(tmp_path, text))
    assert reason is not None
    assert named in reason


@pytest.mark.parametrize("unit", ["/* ", 'R"(', 'R"x(', '\\"', "\\'", "include <", "__has_", "#if defined((("])
def test_what_is_never_closed_is_read_once(unit: str) -> None:
    """Read again from every place, such a text took hours."""
    assert screen_source("#if " + unit * 50_000) is None


@pytest.mark.parametrize(
    "text",
    [
        "#ifdef __builtin_prefetch\n#endif",
        "#ifndef _mm512_maskz_loadu_ps\n#endif",
        "#if 0\n#elif !defined __no_sanitize__\n#endif",
        "#if 1 && defined(/* */ EVO_TRACE_GATHER)\n#endif",
        "#define WATCHED defined(_mm_prefetch)\n#if WATCHED\n#endif",
        "#define IS(x) defined(x)\n#if IS(__builtin_prefetch)\n#endif",
        "%:\\\nundef _mm_stream_ps",
        "#define _mm256_stream_ps(p, v) _mm256_store_ps(p, v)",
        "#define __builtin_prefetch(...)",
    ],
)
def test_text_that_asks_whether_it_is_traced_is_refused(text: str) -> None:
    assert "traces" in (screen_source(text) or "")


def test_what_watches_is_called_by_instrumented_objects_only_and_made_by_none(tmp_path: Path) -> None:
    text = 'extern "C" void __asan_load4_noabort(long); void run() { __asan_load4_noabort(0); }'
    calls = compiled(tmp_path, text)
    assert "__asan_load4_noabort" in (screen_object(calls) or "")
    assert screen_object(calls, hooked=True) is None
    makes = compiled(tmp_path, 'extern "C" void evo_trace_read(const void*, long) {}')
    for hooked in (False, True):
        assert "defines evo_trace_read" in (screen_object(makes, hooked=hooked) or "")


def test_an_object_that_is_long_to_list_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "objdump"
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)
    odd = compiled(tmp_path, "unsigned run() { return 0x050f; }")
    assert screen_object(odd) is None
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr("evoforge.evaluation.screen._LISTING_S", 0.2)
    assert "system call" in (screen_object(odd) or "")


def test_what_is_not_an_object_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kernel.o"
    for data in (b"", b"not an object", b"\x7fELF\x02\x01" + b"\xff" * 80):
        path.write_bytes(data)
        with pytest.raises(ValueError, match="ELF"):
            screen_object(path)


def test_an_object_with_more_sections_than_its_header_counts_is_refused(tmp_path: Path) -> None:
    many = ".macro another\\n.pushsection .text.\\\\@\\n.popsection\\n.endm\\n.rept 66000\\nanother\\n.endr"
    with pytest.raises(ValueError, match="more sections"):
        screen_object(compiled(tmp_path, f'asm("{many}"); __attribute__((constructor)) void early() {{}}'))


def test_the_text_hash_follows_the_code_and_not_the_words(tmp_path: Path) -> None:
    def hashed(text: str) -> str:
        return ElfObject(compiled(tmp_path, text).read_bytes()).text_hash()

    plain = hashed('extern "C" float run(float x) { float y = x * 3; return y + 1; }')
    assert hashed('// why\nextern "C" float run(float value)\n{ float z = value * 3;\n return 1 + z; }') == plain
    assert hashed('extern "C" float run(float x) { float y = x * 3; return y + 2; }') != plain


REMEMBERS = {
    "static int calls; int run() { return calls++; }": ".bss",
    "int calls = 3; int run() { return calls++; }": ".data",
    "thread_local int calls; int run() { return calls++; }": ".tbss",
    "int* run() { static int x = 1; return &x; }": ".data",
    'asm(".comm block, 4096, 64"); int run() { return 0; }': "block",
    'asm(".largecomm block, 4096, 64"); int run() { return 0; }': "block",
    "#include <vector>\nfloat run(int n) { std::vector<float> x(n); return x[0]; }": "_Znwm",
    "#include <cstdlib>\nvoid* run() { return malloc(9); }": "malloc",
    "#include <cstdlib>\nint run() { return rand(); }": "rand",
    '#include <cstdio>\nint run() { return puts("x"); }': "puts",
    "#include <thread>\nvoid run() { std::thread([] {}).join(); }": ".data",
}
FORGETS = [
    "void run(int* x) {\n#pragma omp critical\n*x += 1;\n}",
    "static const float table[3] = {1, 2, 3}; float run(int i) { return table[i]; }",
    'const char* const names[] = {"a", "b"}; const char* run(int i) { return names[i]; }',
    "struct A { virtual int f() { return 1; } }; struct B : A { int f() override { return 2; } };\n"
    "int run(A* a) { B b; return a->f() + b.f(); }",
    "#include <cmath>\n#include <cstring>\nvoid run(double* x, float* y, int n) { memset(x, 0, n); memmove(x, y, n);\n"
    "x[0] = std::exp(x[1]) + std::pow(x[2], x[3]) + std::erf(x[4]) + std::lgamma(x[5]); y[0] = std::tanh(y[1]); }",
    "void run(float* x, int n) {\n#pragma omp parallel for schedule(dynamic)\nfor (int i = 0; i < n; i++) x[i] = i; }",
    "_Complex float run(_Complex float x, _Complex float y) { return x * y / (x + y); }",
    "_Complex double run(_Complex double x, _Complex double y) { return x * y / (x + y); }",
    "int run(unsigned long x) { return __builtin_popcountl(x) + __builtin_parityl(x); }",
    'extern "C" int __isnanf(float); extern "C" int __finite(double);\n'
    "int run(float x) { return __isnanf(x) + __finite(x); }",
]


@pytest.mark.parametrize(("text", "named"), REMEMBERS.items())
def test_code_that_may_remember_is_told(tmp_path: Path, text: str, named: str) -> None:
    assert named in ElfObject(compiled(tmp_path, text).read_bytes()).memory()


@pytest.mark.parametrize("text", FORGETS)
def test_code_that_cannot_remember_is_told(tmp_path: Path, text: str) -> None:
    assert ElfObject(compiled(tmp_path, text).read_bytes()).memory() == ""
