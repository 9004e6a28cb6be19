// Calls one kernel once under the compiler's sanitizers (evaluation/sanitize.py).
//
//   sanitize LIBRARY < tensors
//
// LIBRARY was built with -fsanitize=address,... and with evoforge_trace.h in front; the runtime it needs is linked
// into this program, which is why the kernel is not called by the runner. Standard input is a line `THREADS N_IN
// N_CONST N_OUT`, a line `DTYPE BYTES RANK SIZE… STRIDE…` per tensor, and then the bytes of all but the outputs.
// Every tensor is an allocation of its own, to the byte. Prints `done CODE` if the call came back; what the
// sanitizers found stands on standard error, and the process is dead.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sanitizer/asan_interface.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "filter.h"

enum { MAX_TENSORS = 256, STACK_BYTES = 256 << 20 };

typedef struct {
    void* data;
    int64_t size[8], stride[8];
    int32_t rank, dtype;
} evo_tensor;

typedef struct {
    int32_t abi, n_in, n_const, n_out, threads;
    const evo_tensor *in, *cst, *out;
    const void* packed;
    void* ws;
    int64_t ws_bytes;
} evo_call;

// What the compiler does not instrument (masked, streaming, gathering intrinsics) says here what it touches.
void __asan_report_load_n(void* p, size_t bytes);
void __asan_report_store_n(void* p, size_t bytes);

static void* bad(const void* p, int64_t bytes) { return bytes > 0 ? __asan_region_is_poisoned((void*)p, bytes) : NULL; }

void evo_trace_read(const void* p, int64_t bytes) {
    if (bad(p, bytes)) __asan_report_load_n(bad(p, bytes), 1);
}
void evo_trace_write(const void* p, int64_t bytes) {
    if (bad(p, bytes)) __asan_report_store_n(bad(p, bytes), 1);
}
void evo_trace_stream(const void* p, int64_t bytes) { evo_trace_write(p, bytes); }
void evo_trace_gather(const void* p, int64_t bytes) { evo_trace_read(p, bytes); }
void evo_trace_prefetch(const void* p) { (void)p; }

// Loading a library, computing with threads, and reading what a report names: nothing that starts, talks to or
// changes anything else. The sanitizers can do without what is refused, so nothing here kills.
static int filter(void) {
    const uint32_t writing = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_APPEND | (O_TMPFILE & ~O_DIRECTORY);
    struct sock_filter lines[] = {
        START, PERMIT(SYS_read), PERMIT(SYS_write), PERMIT(SYS_writev), PERMIT(SYS_close), PERMIT(SYS_pread64),
        PERMIT(SYS_fstat), PERMIT(SYS_newfstatat), PERMIT(SYS_lseek), PERMIT(SYS_mmap), PERMIT(SYS_munmap),
        PERMIT(SYS_mprotect), PERMIT(SYS_mremap), ADVICE, PERMIT(SYS_brk), PERMIT(SYS_futex),
        PERMIT(SYS_sched_yield), PERMIT(SYS_sched_getaffinity), PERMIT(SYS_rt_sigprocmask), PERMIT(SYS_rt_sigaction),
        PERMIT(SYS_rt_sigreturn), PERMIT(SYS_sigaltstack), PERMIT(SYS_set_robust_list), PERMIT(SYS_rseq),
        PERMIT(SYS_getpid), PERMIT(SYS_gettid), PERMIT(SYS_getuid), PERMIT(SYS_clock_gettime), PERMIT(SYS_clock_nanosleep),
        PERMIT(SYS_nanosleep), PERMIT(SYS_getrandom), PERMIT(SYS_getcpu), PERMIT(SYS_sysinfo), PERMIT(SYS_uname),
        PERMIT(SYS_membarrier), PERMIT(SYS_restart_syscall), PERMIT(SYS_exit), PERMIT(SYS_exit_group),
        PERMIT(SYS_readlink), PERMIT(SYS_readlinkat), PERMIT(SYS_access), REFUSE(SYS_clone3, ENOSYS),
        IF_CALL(SYS_clone, 6), LOAD(args[0]), IF_ANY(OTHER_SPACES), ERROR(EPERM), IF_ANY(CLONE_THREAD), ALLOW, ERROR(EPERM),
        READING_LIMITS(ERROR(EPERM)),
        IF_CALL(SYS_tgkill, 4), LOAD(args[0]), IF_EQUAL((uint32_t)getpid()), ALLOW, ERROR(EPERM),
        IF_CALL(SYS_openat, 4), LOAD(args[2]), IF_ANY(writing), ERROR(EACCES), ALLOW,
        ERROR(EPERM),
    };
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && set_filter(lines, sizeof lines);
}

static void* room(int64_t bytes) {
    void* data = NULL;
    if (bytes < 0 || posix_memalign(&data, 64, bytes ? bytes : 1)) exit(3);
    return data;
}

int main(int argc, char** argv) {
    static evo_tensor tensors[MAX_TENSORS];
    static int64_t nbytes[MAX_TENSORS];
    int threads, n_in, n_const, n_out;
    if (argc != 2 || scanf("%d %d %d %d", &threads, &n_in, &n_const, &n_out) != 4) return 3;
    int given = n_in + n_const, all = given + n_out;
    if (all > MAX_TENSORS) return 3;
    for (int i = 0; i < all; i++) {
        evo_tensor* t = &tensors[i];
        if (scanf("%d %ld %d", &t->dtype, &nbytes[i], &t->rank) != 3 || t->rank < 0 || t->rank > 8) return 3;
        for (int k = 0; k < 2 * t->rank; k++)
            if (scanf("%ld", k < t->rank ? &t->size[k] : &t->stride[k - t->rank]) != 1) return 3;
        t->data = room(nbytes[i]);
    }
    getchar();  // the end of the last line
    for (int i = 0; i < given; i++)
        if (fread(tensors[i].data, 1, nbytes[i], stdin) != (size_t)nbytes[i]) return 3;

    limit(RLIMIT_STACK, STACK_BYTES);  // instrumented frames are larger
    if (!filter()) return 3;
    void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) return fprintf(stderr, "%s\n", dlerror()), 4;
    int64_t (*workspace)(const evo_call*) = (int64_t(*)(const evo_call*))dlsym(library, "evo_workspace");
    int64_t (*packed_bytes)(const evo_call*) = (int64_t(*)(const evo_call*))dlsym(library, "evo_packed_bytes");
    int (*prepare)(const evo_call*, void*) = (int (*)(const evo_call*, void*))dlsym(library, "evo_prepare");
    int (*run)(const evo_call*) = (int (*)(const evo_call*))dlsym(library, "evo_run");
    if (!run) return 4;
    evo_call call = {1, n_in, n_const, n_out, threads, tensors, tensors + n_in, tensors + given, NULL, NULL, 0};
    if (workspace) call.ws_bytes = workspace(&call);
    if (call.ws_bytes) call.ws = room(call.ws_bytes);
    int64_t packed = packed_bytes && prepare ? packed_bytes(&call) : 0;
    int code = 0;
    if (packed) {
        void* memory = room(packed);
        code = prepare(&call, memory);
        call.packed = memory;
    }
    if (!code) code = run(&call);
    printf("done %d\n", code);
    fflush(stdout);
    _exit(0);
}
