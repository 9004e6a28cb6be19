from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from evoforge.core import Signature, Status, TensorSpec
from evoforge.evaluation.build import Builder
from evoforge.evaluation.runner import KernelFault, Runner
from evoforge.evaluation.shared import SharedTensors
from evoforge.evaluation.targets import find_compiler
from evoforge.paths import include_dir

Outputs = tuple[SharedTensors, SharedTensors]
HEAD = '#include "evoforge.h"\n'


def unscreened(folder: Path, text: str) -> Path:
    """A library that the screen would have stopped."""
    library = folder / "kernel.so"
    library.write_bytes(compiled(text))
    return library


@cache
def compiled(text: str) -> bytes:
    sizes = [f"-DEVO_SIZE_in0_{dim}={size}" for dim, size in enumerate((37, 61))]
    command = [find_compiler(), "-std=gnu++17", "-O1", "-fPIC", "-shared", "-fopenmp", f"-I{include_dir()}", *sizes]
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "kernel.cpp"), Path(folder, "kernel.so")
        source.write_text(text)
        subprocess.run([*command, str(source), "-lm", "-o", str(library)], check=True, capture_output=True)
        return library.read_bytes()


@pytest.fixture
def start(
    builder: Builder, kernel: Callable[[str], str], add_signature: Signature, add_sets: list[SharedTensors],
    add_outputs: Outputs,
) -> Callable[..., Runner]:  # fmt: skip
    def started(library: str | Path, sandbox: str = "basic", timeout_s: float = 10.0, threads: int = 1) -> Runner:
        path = library
        if isinstance(library, str):
            path = builder.build(kernel(library), {"CHUNK": 16}, add_signature).library_path or Path()
        return Runner(
            Path(path), add_signature, constants=None, sets=add_sets, outputs=add_outputs, threads=threads,
            sandbox=sandbox, timeout_s=timeout_s,
        )  # fmt: skip

    return started


def gone(pid: int) -> bool:
    """Whether the process ended; one that only waits to be reaped has."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


def test_calls_rotate_through_sets_and_buffers(
    start: Callable[..., Runner], add_sets: Sequence[SharedTensors], add_outputs: Outputs
) -> None:
    expected = [inputs.array(0) + inputs.array(1) for inputs in add_sets]
    with start("add") as runner:
        assert runner.run(5, 1) > 0  # sets 1 2 0 1 2, buffers 0 1 0 1 0
        np.testing.assert_array_equal(add_outputs[0].array(0), expected[2])
        np.testing.assert_array_equal(add_outputs[1].array(0), expected[1])
        runner.run(1, 0, buffer=1)
        np.testing.assert_array_equal(add_outputs[0].array(0), expected[2])
        np.testing.assert_array_equal(add_outputs[1].array(0), expected[0])
        add_outputs[0].array(0)[...] = -1
        assert runner.empty() > 0
        assert (add_outputs[0].array(0) == -1).all()


@pytest.mark.parametrize("sandbox", ["none", "basic"])
def test_the_level_reached_is_told(start: Callable[..., Runner], sandbox: str) -> None:
    with start("add", sandbox) as runner:
        assert runner.sandbox_level == sandbox
        runner.run(1, 0)


def test_strict_reaches_strict_or_says_basic(start: Callable[..., Runner], add_outputs: Outputs) -> None:
    with start("add", "strict") as runner:
        assert runner.sandbox_level in ("basic", "strict")
        runner.run(2, 0)


def test_the_workspace_is_filled_as_asked(
    start: Callable[..., Runner], add_sets: Sequence[SharedTensors], add_outputs: Outputs
) -> None:
    expected = add_sets[0].array(0) + add_sets[0].array(1)
    with start("workspace") as runner:
        assert runner.info.workspace_bytes == expected.nbytes
        runner.run(1, 0, fill=0xFF)
        np.testing.assert_array_equal(add_outputs[0].array(0), expected)
    with start("stale_workspace") as runner:
        runner.run(1, 0, fill=0)
        np.testing.assert_array_equal(add_outputs[0].array(0), expected)
        runner.run(1, 0, fill=0xFF)
        assert np.isnan(add_outputs[0].array(0)).all()


@pytest.mark.parametrize(("name", "status"), [("packed", None), ("repacks", Status.VIOLATION)])
def test_weights_are_packed_once_and_then_only_read(
    builder: Builder, kernel: Callable[[str], str], name: str, status: Status | None
) -> None:
    signature = Signature(
        (TensorSpec("in0", (5, 7), (7, 1), "f32"),), (TensorSpec("cst0", (7,), (1,), "f32"),),
        (TensorSpec("out0", (5, 7), (7, 1), "f32"),),
    )  # fmt: skip
    inputs, constants = SharedTensors(signature.inputs), SharedTensors(signature.constants)
    outputs = (SharedTensors(signature.outputs), SharedTensors(signature.outputs))
    inputs.array(0)[...] = 3
    constants.array(0)[...] = np.arange(7)
    library = builder.build(kernel(name), {}, signature).library_path
    assert library is not None
    with Runner(library, signature, constants=constants, sets=[inputs], outputs=outputs, threads=1) as runner:
        assert runner.info.packed_bytes == 28
        if status is None:
            runner.run(2, 0)
            np.testing.assert_array_equal(outputs[1].array(0), np.tile(6.0 * np.arange(7), (5, 1)))
        else:
            with pytest.raises(KernelFault) as caught:
                runner.run(1, 0)
            assert caught.value.status is status
            assert "packed" in caught.value.reason


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("past_end", Status.OUT_OF_BOUNDS, "past the end of out0"),
        ("before_start", Status.OUT_OF_BOUNDS, "before the start of out0"),
        ("reads_past_end", Status.OUT_OF_BOUNDS, "read 4096 bytes past the end of in0"),
        ("writes_input", Status.VIOLATION, "in0"),
        ("flush_to_zero", Status.VIOLATION, "mode"),
        ("segfault", Status.CRASH, "0x10"),
        ("stack_overflow", Status.CRASH, "stack overflow"),
        ("aborts", Status.CRASH, "Abort"),
        ("throws", Status.CRASH, "instance of 'int'"),
        ("reports_error", Status.CRASH, "returned 2"),
        ("declines", Status.UNSUPPORTED, "returned 1"),
        ("memory_blow_up", Status.OUT_OF_MEMORY, "bad_alloc"),
        ("endless_loop", Status.TIMEOUT, "time"),
        ("no_entry", Status.LOAD_ERROR, "evo_run"),
    ],
)
def test_every_way_to_fail_has_its_status(start: Callable[..., Runner], name: str, status: Status, said: str) -> None:
    pid = 0
    with pytest.raises(KernelFault) as caught, start(name) as runner:
        pid = runner.pid
        runner.run(1, 0, timeout_s=0.5)
    assert caught.value.status is status
    assert said in caught.value.reason
    assert pid == 0 or gone(pid)


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


ENDS = {
    "at load": "__attribute__((constructor)) static void f() { _exit(0); }\n"
    'extern "C" int evo_run(const evo_call*) { return 0; }',
    "in a call": 'extern "C" int evo_run(const evo_call*) { _exit(0); }',
    "exit in a call": 'extern "C" int evo_run(const evo_call*) { exit(0); }',
    "kill": 'extern "C" int evo_run(const evo_call*) { for (int i = 3; i < 1024; i++) close(i); return 0; }',
}


@pytest.mark.parametrize(("how", "status"), [
    ("at load", Status.LOAD_ERROR), ("in a call", Status.VIOLATION), ("exit in a call", Status.VIOLATION),
    ("kill", Status.VIOLATION),
])  # fmt: skip
def test_what_the_screen_stops_is_stopped_again(
    start: Callable[..., Runner], tmp_path: Path, how: str, status: Status
) -> None:
    library = unscreened(tmp_path, HEAD + "#include <stdlib.h>\n#include <unistd.h>\n" + ENDS[how])
    with pytest.raises(KernelFault) as caught, start(library) as runner:
        runner.run(1, 0, timeout_s=2.0)
    assert caught.value.status is status


SYSTEM = """
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static void ignore(int) {}
extern "C" int evo_run(const evo_call* call) {
    float* out = EVO_OUT(float, 0);
    (void)ignore, (void)out;
"""
CALLS = [
    "fork();",
    "vfork();",
    "syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);",
    'execl("/bin/true", "true", nullptr);',
    "socket(AF_INET, SOCK_STREAM, 0);",
    "ptrace(PTRACE_TRACEME, 0, 0, 0);",
    "kill(-1, SIGKILL);",
    "syscall(SYS_tgkill, 1 << 20, 1 << 20, 0);",
    "signal(SIGSEGV, ignore);",
    "mprotect((void*)((long)evo_run & -4096L), 4096, PROT_READ | PROT_WRITE | PROT_EXEC);",
    "mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);",
    'memfd_create("x", 0);',
    "for (int fd = 3; fd < 1024; fd++) write(fd, out, 264);",
    "char x; for (int fd = 3; fd < 1024; fd++) read(fd, &x, 1);",
    "prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0);",
    "setsid();",
    "unshare(CLONE_NEWUSER);",
    'mkdir("/tmp/x", 0700);',
    'chmod("/", 0777);',
    "timer_t t; timer_create(CLOCK_MONOTONIC, nullptr, &t);",
]


@pytest.mark.parametrize("sandbox", ["basic", "strict"])
@pytest.mark.parametrize("call", CALLS)
def test_what_only_an_attack_does_ends_the_process(
    start: Callable[..., Runner], tmp_path: Path, call: str, sandbox: str
) -> None:
    library = unscreened(tmp_path, HEAD + SYSTEM + call + " return 0; }")
    with pytest.raises(KernelFault, match="which a kernel may not") as caught, start(library, sandbox) as runner:
        runner.run(1, 0, timeout_s=2.0)
    assert caught.value.status is Status.VIOLATION


def test_a_kernel_cannot_blame_the_harness(start: Callable[..., Runner], tmp_path: Path) -> None:
    """Trouble of the runner's own costs no evaluation, so only the runner may have it."""
    text = """#include <unistd.h>
    extern "C" int evo_run(const evo_call* call) {
        struct { uint64_t nonce; int32_t status, code; int64_t a, b; char text[224]; } forged = {1, 7, 0, 0, 0, "why"};
        for (int fd = 3; fd < 2000; fd++)
            if (write(fd, &forged, sizeof forged) > 0) break;
        return 0;
    }"""
    with (
        start(unscreened(tmp_path, HEAD + text), "none") as runner,
        pytest.raises(KernelFault, match="forged") as caught,
    ):
        runner.run(1, 0, timeout_s=2.0)
    assert caught.value.status is Status.VIOLATION


@pytest.mark.parametrize("sandbox", ["basic", "strict"])
def test_the_vector_library_is_there(
    start: Callable[..., Runner], tmp_path: Path, add_outputs: Outputs, sandbox: str
) -> None:
    """In a root without files nothing can be loaded any more."""
    text = """#include <immintrin.h>
    extern "C" __m128 _ZGVbN4v_expf(__m128);
    extern "C" int evo_run(const evo_call* call) {
        _mm_storeu_ps(EVO_OUT(float, 0), _ZGVbN4v_expf(_mm_setzero_ps()));
        return 0;
    }"""
    with start(unscreened(tmp_path, HEAD + text), sandbox) as runner:
        runner.run(1, 0)
    assert (add_outputs[0].array(0).reshape(-1)[:4] == 1).all()


@pytest.mark.parametrize("sandbox", ["basic", "strict"])
def test_files_cannot_be_opened(
    start: Callable[..., Runner], tmp_path: Path, add_outputs: Outputs, sandbox: str
) -> None:
    target = tmp_path / "written"
    text = f"""
    int at = 0;
#define TRY(call) do {{ errno = 0; out[at++] = (call) < 0 ? errno : 0; }} while (0)
    TRY(open("{target}", O_WRONLY | O_CREAT, 0600));
    TRY(open("/etc/passwd", O_RDONLY));
    TRY(open("/proc/self/mem", O_RDWR));
    TRY(open("/proc/self/maps", O_RDONLY));
    return 0;
}}
"""
    with start(unscreened(tmp_path, HEAD + SYSTEM + text), sandbox) as runner:
        runner.run(1, 0)
    assert (add_outputs[0].array(0)[0, :4] != 0).all()
    assert not target.exists()


THREADS = """
#include <atomic>
#include <future>
#include <memory>
#include <pthread.h>
#include <thread>
#include <unistd.h>
#include <vector>
extern "C" int evo_run(const evo_call* call) {
    float* out = EVO_OUT(float, 0);
"""
JOINED = {
    "std::thread": "std::vector<std::thread> all; for (int i = 0; i < 5; i++) all.emplace_back([=] { out[i] = 7; });"
    "for (auto& one : all) one.join();",
    "async": "std::vector<std::future<void>> all;"
    "for (int i = 0; i < 5; i++) all.push_back(std::async(std::launch::async, [=] { out[i] = 7; }));"
    "for (auto& one : all) one.get();",
    "pthread_exit": "pthread_t one; pthread_create(&one, nullptr,"
    "[](void* x) -> void* { for (int i = 0; i < 5; i++) ((float*)x)[i] = 7; pthread_exit(x); }, out);"
    "pthread_join(one, nullptr);",
    "OpenMP": '_Pragma("omp parallel for num_threads(4)") for (int i = 0; i < 5; i++) out[i] = 7;',
    "tasks": '_Pragma("omp parallel") _Pragma("omp single") for (int i = 0; i < 5; i++)'
    ' _Pragma("omp task") out[i] = 7;',
}
LEFT = {
    "detached": "std::thread([=] { for (volatile long x = 0; x < 1000000000000; x++) {} out[0] = 1; }).detach();",
    "forgotten": "new std::thread([=] { volatile long x = 0; while (x >= 0) x++; });",
    "pthread": "pthread_t one; pthread_create(&one, nullptr,"
    "[](void* x) -> void* { for (volatile long i = 0; i >= 0; i++) {} return x; }, nullptr);",
    "bomb": "for (int i = 0; i < 10000; i++) { pthread_t one;"
    "pthread_create(&one, nullptr, [](void*) -> void* { for (;;) sleep(9); return nullptr; }, nullptr); }",
}


@pytest.mark.parametrize("sandbox", ["basic", "strict"])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("how", JOINED)
def test_threads_that_end_in_time_are_fine(
    start: Callable[..., Runner], tmp_path: Path, add_outputs: Outputs, how: str, threads: int, sandbox: str
) -> None:
    library = unscreened(tmp_path, HEAD + THREADS + JOINED[how] + "return 0; }")
    with start(library, sandbox, threads=threads) as runner:
        for n in (1, 40):
            add_outputs[0].array(0)[...] = 0
            runner.run(n, 0)
            assert (add_outputs[0].array(0)[0, :5] == 7).all()


@pytest.mark.parametrize("sandbox", ["basic", "strict"])
@pytest.mark.parametrize("how", LEFT)
def test_a_thread_that_outlives_its_batch_is_caught(
    start: Callable[..., Runner], tmp_path: Path, how: str, sandbox: str
) -> None:
    text = '_Pragma("omp parallel for") for (int i = 0; i < 5; i++) out[i] = 7;' + LEFT[how]
    library = unscreened(tmp_path, HEAD + THREADS + text + "return 0; }")
    with pytest.raises(KernelFault) as caught, start(library, sandbox, threads=3) as runner:
        runner.run(1, 0, timeout_s=2.0 if how == "bomb" else 10.0)
    assert caught.value.status is Status.VIOLATION or (how == "bomb" and caught.value.status is Status.TIMEOUT)
    assert "outlives" in caught.value.reason or how == "bomb"


def test_a_team_left_open_is_caught(start: Callable[..., Runner], tmp_path: Path) -> None:
    text = (
        'extern "C" void GOMP_parallel_start(void (*)(void*), void*, unsigned);\n'
        'extern "C" int evo_run(const evo_call*) {\n'
        "GOMP_parallel_start([](void*) { for (volatile long i = 0; i >= 0; i++) {} }, nullptr, 3); return 0; }"
    )
    with pytest.raises(KernelFault) as caught, start(unscreened(tmp_path, HEAD + text), threads=3) as runner:
        runner.run(1, 0)
    assert caught.value.status is Status.VIOLATION
    assert "OpenMP" in caught.value.reason


@pytest.mark.parametrize("clock", ["__builtin_ia32_rdtsc()", "__builtin_ia32_rdtscp(&with)", "coarse()"])
def test_a_kernel_cannot_read_the_clock(start: Callable[..., Runner], tmp_path: Path, clock: str) -> None:
    text = (
        "#include <time.h>\n"
        "static long coarse() { timespec t = {}; clock_gettime(CLOCK_REALTIME_COARSE, &t); return t.tv_sec; }\n"
        f'extern "C" int evo_run(const evo_call*) {{ unsigned with; return ({clock} + (with = 0)) == 1; }}'
    )
    with pytest.raises(KernelFault) as caught, start(unscreened(tmp_path, HEAD + text)) as runner:
        runner.run(1, 0)
    assert caught.value.status is Status.VIOLATION
    assert "clock" in caught.value.reason


SIGHT = {
    "in evo_workspace": "int64_t evo_workspace(const evo_call* call) { return seen(call) ? -1 : 64; }",
    "in evo_prepare": "int64_t evo_packed_bytes(const evo_call* call) { return seen(call) ? -1 : 64; }"
    "int evo_prepare(const evo_call* call, void*) { return seen(call) ? 3 : 0; }",
}


@pytest.mark.parametrize("how", SIGHT)
def test_before_the_first_call_there_are_sizes_and_no_data(
    start: Callable[..., Runner], tmp_path: Path, how: str
) -> None:
    text = (
        "static bool seen(const evo_call* call) {\n"
        "return call->in[0].data || call->in[1].data || call->out[0].data || call->in[1].size[1] != 61; }\n"
        f'extern "C" {{ {SIGHT[how]} }}\n'
        'extern "C" int evo_run(const evo_call* call) { return call->in[1].data && call->out[0].data ? 0 : 2; }'
    )
    with start(unscreened(tmp_path, HEAD + text)) as runner:
        runner.run(3, 0)


def test_a_call_tells_nothing_of_the_next_ones_tensors(
    start: Callable[..., Runner], tmp_path: Path, add_outputs: Outputs
) -> None:
    text = """
extern "C" int evo_run(const evo_call* call) {
    static long places[4];
    static int calls;
    float* out = EVO_OUT(float, 0);
    evo_tensor* own = (evo_tensor*)call->in;
    for (int i = 0; i < 2; i++) places[2 * (calls % 2) + i] = (long)own[i].data;
    out[0] = own[1].data < (char*)own[0].data + 37 * 61 * 4 && own[1].data > own[0].data;
    out[1] = calls && places[1] - places[0] == places[3] - places[2];  // no regular distances
    const unsigned long beyond = (unsigned long)call->out[call->n_out].data;  // one byte, over and over
    out[2] = beyond != (beyond & 255) * 0x0101010101010101ul || call->n_in != 2 || own[0].size[1] != 61;
    own[0].data = nullptr, own[0].size[1] = 0;  // harms nobody but this call
    ((evo_call*)call)->n_in = 99, calls++;
    return 0;
}
"""
    with start(unscreened(tmp_path, HEAD + text)) as runner:
        runner.run(7, 0)
    for outputs in add_outputs:
        assert (outputs.array(0)[0, :3] == 0).all()


def test_a_stack_is_wiped_between_commands(start: Callable[..., Runner], tmp_path: Path, add_outputs: Outputs) -> None:
    text = """
#include <string.h>
template <int N> __attribute__((noinline)) float find(bool write) {
    volatile char deep[N];
    float found = 0;
    if (write) memset((char*)deep, 77, N);
    else for (int i = 0; i < N; i++) found += deep[i] == 77;
    return found;
}
extern "C" int evo_run(const evo_call* call) {
    static int calls;
    float* out = EVO_OUT(float, 0);
    bool write = !calls++;
    out[0] = find<1 << 20>(write), out[1] = find<2000>(write);
    return 0;
}
"""
    with start(unscreened(tmp_path, HEAD + text)) as runner:
        runner.run(1, 0)
        runner.run(1, 0)
    assert (add_outputs[0].array(0)[0, :2] == 0).all()


AS_NOBODY = """
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_an_unprivileged_user_reaches_the_same_level(
    start: Callable[..., Runner], builder: Builder, kernel: Callable[[str], str], add_signature: Signature,
) -> None:  # fmt: skip
    with start("add", "strict") as runner:
        reached = runner.sandbox_level
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        cache = Path(folder)
        library = shutil.copy(builder.build(kernel("add"), {"CHUNK": 16}, add_signature).library_path or "", cache)
        for path in (cache, Path(library)):
            os.chown(path, 65534, 65534)
        then = "assert runner.run(2, 0) > 0; print(runner.sandbox_level)"
        script = JUDGE.format(
            signature=add_signature.to_json(), library=library, sandbox="strict", then=then, first=AS_NOBODY
        )
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=False,
            env={**os.environ, "EVOFORGE_CACHE": folder, "HOME": folder},
        )  # fmt: skip
    assert done.stdout.split()[1:] == [reached], done.stderr


def test_what_a_kernel_prints_changes_nothing(start: Callable[..., Runner], add_outputs: Outputs) -> None:
    with start("prints") as runner:
        for _ in range(3):
            runner.run(1, 0, timeout_s=5.0)


def test_a_runner_leaves_neither_process_nor_descriptor(start: Callable[..., Runner]) -> None:
    start("add").close()
    gc.collect()  # else what earlier tests left is closed in between
    before = open_files()
    runner = start("add")
    pid = runner.pid
    runner.close()
    runner.close()
    assert gone(pid)
    with contextlib.suppress(KernelFault):
        start("no_entry")
    assert open_files() == before


@pytest.mark.parametrize("sandbox", ["basic", "strict"])
def test_processor_time_is_that_of_the_kernel(start: Callable[..., Runner], sandbox: str) -> None:
    """The process that is known may only wait for the one that works."""
    with start("slow", sandbox) as runner:
        before = runner.busy_s
        seconds = runner.run(20, 0)
        worked = runner.busy_s - before
        time.sleep(0.2)
        assert 0.05 < worked < seconds + 0.05, "400 million steps of one thread"
        assert runner.busy_s - before == pytest.approx(worked, abs=0.05), "it stands still"


def state_of(pid: int) -> str:
    """The letter of /proc: T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def becomes(pid: int, state: str) -> bool:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if state_of(pid) == state:
            return True
        time.sleep(0.001)
    return False


def test_a_runner_stands_still_between_commands(start: Callable[..., Runner]) -> None:
    with start("add") as runner:
        assert becomes(runner.pid, "T")
        for _ in range(3):
            runner.run(3, 0)
            runner.empty()
            assert becomes(runner.pid, "T")


def test_a_batch_can_rotate_through_some_of_the_sets(
    start: Callable[..., Runner], add_sets: Sequence[SharedTensors], add_outputs: Outputs
) -> None:
    expected = [inputs.array(0) + inputs.array(1) for inputs in add_sets]
    with start("add") as runner:
        runner.run(4, 0, base=1, span=1)
        for outputs in add_outputs:
            np.testing.assert_array_equal(outputs.array(0), expected[1])
        runner.run(2, 1, base=1)  # sets 2 1
        np.testing.assert_array_equal(add_outputs[0].array(0), expected[2])
        np.testing.assert_array_equal(add_outputs[1].array(0), expected[1])
        with pytest.raises(ValueError, match="span"):
            runner.run(1, 0, base=2, span=2)


@pytest.mark.parametrize("near", [0, 3])
def test_calls_can_be_timed_from_when_threads_and_caches_are_ready(
    start: Callable[..., Runner], add_sets: Sequence[SharedTensors], add_outputs: Outputs, near: int
) -> None:
    expected = [inputs.array(0) + inputs.array(1) for inputs in add_sets]
    with start("add") as runner:
        seconds, busy_s = runner.run_ready(2, 1, span=len(add_sets), near=near)
        assert 0 < seconds < 10
        assert busy_s > 0
        np.testing.assert_array_equal(add_outputs[0].array(0), expected[1])
        np.testing.assert_array_equal(add_outputs[1].array(0), expected[2])
        assert runner.run(2, 0) > 0, "what is said in between does not come in again"
        assert runner.run_ready(0, 0, span=1, near=near)[0] > 0
        with pytest.raises(ValueError, match="up to 3 sets"):
            runner.run_ready(1, 0, span=1, near=len(add_sets) + 1)


JUDGE = """
import os, sys, threading
from pathlib import Path
from evoforge.core import Signature
from evoforge.evaluation.runner import Runner
from evoforge.evaluation.shared import SharedTensors
{first}
s = Signature.from_json({signature!r})
def begin():
    global runner
    outputs = (SharedTensors(s.outputs), SharedTensors(s.outputs))
    sets = [SharedTensors(s.inputs)]
    runner = Runner(
        Path({library!r}), s, constants=None, sets=sets, outputs=outputs, threads=1, sandbox={sandbox!r}
    )
begun = threading.Thread(target=begin)
begun.start()
begun.join()
print(runner.pid, flush=True)
{then}
"""


@pytest.mark.parametrize("sandbox", ["basic", "strict"])
@pytest.mark.parametrize("when", ["in a call", "stopped"])
def test_a_runner_dies_with_the_judge(
    builder: Builder, kernel: Callable[[str], str], add_signature: Signature, when: str, sandbox: str
) -> None:
    library = builder.build(kernel("endless_loop"), {}, add_signature).library_path
    then = "runner.run(1, 0, timeout_s=60)" if when == "in a call" else "sys.stdin.read()"
    script = JUDGE.format(signature=add_signature.to_json(), library=str(library), sandbox=sandbox, then=then, first="")
    judge = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0
    )
    assert judge.stdin is not None
    assert judge.stdout is not None
    with judge.stdin, judge.stdout:
        pid = int(judge.stdout.readline())
        group = members(pid)
        assert becomes(group[-1], "T" if when == "stopped" else "R")
        judge.send_signal(signal.SIGKILL)
        judge.wait()
    deadline = time.monotonic() + 2
    while not all(map(gone, group)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert all(map(gone, group))


def members(leader: int) -> list[int]:
    """The processes of a group, its leader included."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[2]) == leader:
                found.append(int(path.parent.name))
    return sorted(found)


def test_a_signal_without_a_name_is_a_crash(start: Callable[..., Runner], tmp_path: Path) -> None:
    text = '#include "evoforge.h"\n#include <signal.h>\nextern "C" int evo_run(const evo_call*) { return raise(40); }'
    with start(unscreened(tmp_path, text), "none") as runner, pytest.raises(KernelFault, match="signal 40") as fault:
        runner.run(1, 0)
    assert fault.value.status is Status.CRASH


def test_what_threads_wait_for_processors_is_known(start: Callable[..., Runner]) -> None:
    with start("slow") as runner, ExitStack() as hogs:
        own = os.sched_getaffinity(runner.pid)
        os.sched_setaffinity(runner.pid, {min(own)})
        for _ in range(3):
            hog = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            hogs.callback(hog.wait)
            hogs.callback(hog.kill)
            os.sched_setaffinity(hog.pid, {min(own)})
        before = runner.waited_s
        seconds = runner.run(3, 0)
        waited = runner.waited_s - before
        assert waited > seconds / 4


def test_a_call_that_others_kept_from_the_processors_is_waited_for(start: Callable[..., Runner]) -> None:
    with start("slow") as runner:
        held = threading.Event()

        def hold() -> None:  # again and again: the call itself lets its process go on
            until = time.monotonic() + 1.2
            while time.monotonic() < until:
                os.killpg(runner.pid, signal.SIGSTOP)
                held.set()
                time.sleep(0.002)
            os.killpg(runner.pid, signal.SIGCONT)

        holding = threading.Thread(target=hold)
        holding.start()
        held.wait()
        runner.run(1, 0, timeout_s=0.5)  # TIMEOUT, were it not waited for: it stands for 1.2 s
        holding.join()
