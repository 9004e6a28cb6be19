// The untrusted side of the judge: maps the tensors, sandboxes itself, loads one kernel, obeys
// "run n calls". It knows no reference, no clock and no verdict; whatever it says is checked outside.
//
// usage: runner LIBRARY COMMAND_FD REPLY_FD
// On COMMAND_FD first the layout (struct header, then the arrays below it), then commands; every
// command gets one reply with its nonce, or the process is dead. The Python side is
// evoforge/evaluation/runner.py; both must agree on the structs here.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <ucontext.h>
#include <unistd.h>
#include <xmmintrin.h>

#include "runner_faults.h"
#include "runner_filter.h"
#include "runner_memory.h"
#include "runner_threads.h"
#include "sandbox.h"

enum { MAGIC = 0x45564f31 };
enum { INFO = 1, PREPARE, RUN, READY, OPEN };
enum { MORE_THREADS = 64, CPU_SECONDS = 3600 };

struct header {
    uint32_t magic, level, threads, n_in, n_const, n_out, n_sets, n_cpus, n_buffers, unused;
    uint64_t nonce, memory_bytes, key;
};
struct command {
    uint64_t nonce;
    uint32_t op, n, start, buffer, fill, base, span, buffers;
};

static int command_fd;

static void read_all(void* into, size_t bytes) {
    for (char* at = into; bytes;) {
        ssize_t got = read(command_fd, at, bytes);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) _exit(0);  // the judge closed the channel
        at += got, bytes -= got;
    }
}

// What malloc gives from now on holds this byte all over; from 256 on, what it happens to hold.
static void fill_new_memory(uint32_t byte) { mallopt(M_PERTURB, byte < 256 ? 256 | (byte ^ 0xff) : 0); }

static uint64_t mapped_bytes(void) {
    char text[64] = "";
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        if (read(fd, text, sizeof text - 1) < 0) text[0] = 0;
        close(fd);
    }
    return strtoull(text, NULL, 10) * PAGE;
}

// Takes away the pages in which the vdso finds the time, a coarse one even without counter or system call. Nobody maps
// them again; where the system has sealed them they stay.
static void forget_time(void) {
    char line[512];
    uint64_t from, to;
    FILE* maps = fopen("/proc/self/maps", "re");
    while (maps && fgets(line, sizeof line, maps)) {
        if (!strstr(line, "[vvar") || sscanf(line, "%" SCNx64 "-%" SCNx64, &from, &to) != 2) continue;
        if (munmap((void*)from, to - from)) continue;
        if (!time_from) time_from = from;
        time_to = to;
    }
    if (maps) fclose(maps);
}

// The library's bytes in memory, so that a process that may no longer open its file can load it.
static int copy_of(const char* path) {
    struct stat about;
    int file = open(path, O_RDONLY | O_CLOEXEC), copy = memfd_create("kernel", MFD_CLOEXEC);
    if (file < 0 || copy < 0 || fstat(file, &about)) return -1;
    for (int64_t left = about.st_size; left > 0;) {
        ssize_t moved = sendfile(copy, file, NULL, left);
        if (moved <= 0) return -1;
        left -= moved;
    }
    close(file);
    return copy;
}

// An empty file system with nothing but the kernel becomes the root.
static int empty_root(int library_fd) {
    struct stat about;
    off_t from = 0;
    if (mount("none", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=256m,nr_inodes=16,mode=755") || chdir("/tmp")) return 0;
    int copy = open("kernel.so", O_WRONLY | O_CREAT | O_CLOEXEC, 0500);
    int fine = copy >= 0 && !fstat(library_fd, &about);
    while (fine && from < about.st_size) fine = sendfile(copy, library_fd, &from, about.st_size - from) > 0;
    if (copy >= 0) close(copy);
    return fine && !chroot(".") && !mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL);
}

// Level 0: a separate process only. 1: limits and a filter. 2: namespaces, an empty root and landlock too.
// Returns the level reached; `path` becomes where the library is then.
static int sandbox(struct header* head, int inside, int library_fd, char path[32]) {
    if (head->level == 0) return 0;
    forget_time();
    uint64_t mapped = mapped_bytes();
    int strict = 0;
    if (library_fd >= 0) snprintf(path, 32, "/proc/self/fd/%d", library_fd);
    if (inside) {
        strict = empty_root(library_fd);
        if (strict) strcpy(path, "/kernel.so");
        int rules = landlock_rules();
        if (rules >= 0) landlock_allow(rules, path, 0);
        strict = landlock_enforce(rules) && drop_capabilities() && strict;
        limit(RLIMIT_NPROC, head->threads + MORE_THREADS);
    }
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_FSIZE, 0);
    limit(RLIMIT_MEMLOCK, 0);
    limit(RLIMIT_MSGQUEUE, 0);
    limit(RLIMIT_CPU, CPU_SECONDS * (uint64_t)head->threads);
    limit(RLIMIT_STACK, STACK);
    limit(RLIMIT_AS, mapped + head->memory_bytes);
    prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0);  // no counter; an error only means that it can be read
    return filter_for_loading(&head->key) ? 1 + strict : 0;
}

// Calls a function on a stack of its own, with the other registers empty: what the runner keeps on its
// stack and in registers (how many calls are left, the nonce) is not what a kernel finds first. The registers that a
// function must give back hold a number; `clobbered` is no longer 0 once one did not.
static char* saved_stack __attribute__((used));
static uint64_t lent __attribute__((used)), clobbered __attribute__((used));

__attribute__((naked, noinline)) static int64_t call_on(char* stack, void* function, const void* first, void* second) {
    (void)stack, (void)function, (void)first, (void)second;
    __asm__("push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
            "mov %rsp, saved_stack(%rip)\n mov %rdi, %rsp\n mov %rsi, %rax\n mov %rdx, %rdi\n mov %rcx, %rsi\n"
            "mov lent(%rip), %rbx\n mov %rbx, %rbp\n mov %rbx, %r12\n mov %rbx, %r13\n mov %rbx, %r14\n"
            "mov %rbx, %r15\n xor %ecx, %ecx\n xor %edx, %edx\n xor %r8d, %r8d\n xor %r9d, %r9d\n"
            "xor %r10d, %r10d\n xor %r11d, %r11d\n"
            "push $0\n push $0\n call *%rax\n"  // no caller above: an exception ends here
            "mov saved_stack(%rip), %rsp\n mov lent(%rip), %rcx\n xor %rcx, %rbx\n xor %rcx, %rbp\n xor %rcx, %r12\n"
            "xor %rcx, %r13\n xor %rcx, %r14\n xor %rcx, %r15\n or %rbp, %rbx\n or %r12, %rbx\n or %r13, %rbx\n"
            "or %r14, %rbx\n or %r15, %rbx\n or %rbx, clobbered(%rip)\n"
            "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret");
}

// `data` gets the address of every tensor: those of the first copy, then those of the second, ...
static void map_tensors(const struct layout* layouts, int count, int copies, const int32_t* fds, int prot, int kind,
                        void** data) {
    for (int at = 0; at < copies * count; at++) {
        const struct layout* it = &layouts[at % count];
        data[at] = place(fds[at / count], it->start, it->length, it->data, it->nbytes, prot, kind, at % count);
        if (!data[at]) fail(OUT_OF_MEMORY, "the tensors could not be mapped");
    }
}

// How the thread rounds and flushes, without the sticky exception flags; above bit 32 which registers of x87 or MMX are
// in use, and where their stack is.
static uint64_t float_mode(void) {
    struct {
        uint16_t control, status;
        uint8_t in_use, rest[507];
    } x87 __attribute__((aligned(16)));
    __asm__ volatile("fxsave %0" : "=m"(x87));
    return (uint64_t)(x87.status >> 11 & 7) << 40 | (uint64_t)x87.in_use << 32 | (_mm_getcsr() & 0xffc0u) << 16 | x87.control;
}

static const char* left_changed(uint64_t bits) {
    return bits >> 32 ? "left registers of x87 or MMX in use" : "left the rounding, FTZ/DAZ or exception mode changed";
}

// In what threads of OpenMP's pool, which outlive a call, differ from the start.
static uint64_t changed_in_pool(uint64_t mode) {
    const int all = 1 + atomic_load(&pool_threads);
    uint64_t changed = 0;
    if (all == 1) return 0;
#pragma omp parallel num_threads(all) reduction(| : changed)
    changed |= float_mode() ^ mode;
    return changed;
}

// What a caller finds when it asks OpenMP.
static struct omp_settings {
    int threads, dynamic, levels, chunk;
    omp_sched_t kind;
} omp_settings(void) {
    struct omp_settings now = {omp_get_max_threads(), omp_get_dynamic(), omp_get_max_active_levels(), 0, 0};
    omp_get_schedule(&now.kind, &now.chunk);
    return now;
}

int main(int argc, char** argv) {
    if (argc != 4) return 2;
    die_with_parent();
    command_fd = atoi(argv[2]), reply_fd = atoi(argv[3]);
    struct header head;
    read_all(&head, sizeof head);
    if (head.magic != MAGIC || head.n_sets < 1 || head.n_buffers < 1) return 2;
    if (!fill_with_random((void*)&mask, sizeof mask)) return 2;
    nonce = head.nonce ^ mask;
    be_expendable();
    int library_fd = head.level >= 2 ? copy_of(argv[1]) : -1, inside = 0;
    if (library_fd >= 0) {
        stop_being_root();
        inside = enter_namespaces();
    }
    int n_tensors = head.n_in + head.n_const + head.n_out, n_fds = head.n_sets + 1 + head.n_buffers;
    int32_t* cpus = malloc((head.n_cpus + 1) * sizeof *cpus);
    int32_t* fds = malloc(n_fds * sizeof *fds);  // input sets, constants, output buffers
    struct layout* layouts = malloc((n_tensors + 1) * sizeof *layouts);
    read_all(cpus, head.n_cpus * sizeof *cpus);
    read_all(fds, n_fds * sizeof *fds);
    read_all(layouts, n_tensors * sizeof *layouts);
    regions = calloc((size_t)head.n_in * head.n_sets + head.n_const + (size_t)head.n_buffers * head.n_out + 2, sizeof *regions);

    if (head.n_cpus) {
        cpu_set_t set;
        CPU_ZERO(&set);
        for (uint32_t i = 0; i < head.n_cpus; i++) CPU_SET(cpus[i], &set);
        sched_setaffinity(0, sizeof set, &set);
    }
    // Frozen, out of a kernel's sight: what tensors look like, and where those of each set and buffer are.
    const struct layout *of_in = layouts, *of_const = layouts + head.n_in, *of_out = of_const + head.n_const;
    size_t n_inputs = (size_t)head.n_in * head.n_sets, n_outputs = (size_t)head.n_buffers * head.n_out;
    size_t table = (n_inputs + n_outputs + head.n_const) * sizeof(void*), each = sizeof(evo_tensor);
    void** inputs = blank(table);
    evo_tensor *shapes = blank((head.n_in + head.n_out) * each), *cst = blank(head.n_const * each);
    if (!inputs || !shapes || !cst) fail(HARNESS, "there is no memory for the tensors' places");
    void **outputs = inputs + n_inputs, **constants = outputs + n_outputs;
    map_tensors(of_in, head.n_in, head.n_sets, fds, PROT_NONE, INPUT, inputs);
    map_tensors(of_out, head.n_out, head.n_buffers, fds + head.n_sets + 1, PROT_READ | PROT_WRITE, OUTPUT, outputs);
    map_tensors(of_const, head.n_const, 1, fds + head.n_sets, PROT_READ, CONSTANT, constants);
    describe(of_in, head.n_in, shapes);
    describe(of_out, head.n_out, shapes + head.n_in);
    describe(of_const, head.n_const, cst);
    for (uint32_t i = 0; i < head.n_const; i++) cst[i].data = constants[i];
    freeze(inputs, table), freeze(shapes, (head.n_in + head.n_out) * each), freeze(cst, head.n_const * each);

    // Nothing stays open but the channel and what follows, away from the numbers a kernel would try first.
    command_fd = fcntl(command_fd, F_DUPFD_CLOEXEC, 400 + (int)(head.nonce % 200));
    reply_fd = fcntl(reply_fd, F_DUPFD_CLOEXEC, command_fd + 1 + (int)(head.nonce / 200 % 200));
    tasks_fd = fcntl(open("/proc/self/task", O_RDONLY | O_CLOEXEC), F_DUPFD_CLOEXEC, reply_fd + 1);
    if (library_fd >= 0) library_fd = fcntl(library_fd, F_DUPFD_CLOEXEC, tasks_fd < 0 ? reply_fd + 1 : tasks_fd + 1);
    if (command_fd < 0 || reply_fd < 0) fail(HARNESS, "the channel could not be moved");
    const int kept[] = {2, command_fd, reply_fd, tasks_fd, library_fd};
    int before = 2;
    for (int i = 1; i < 5; i++) {
        if (kept[i] < 0) continue;
        if (kept[i] > before + 1) close_range(before + 1, kept[i] - 1, 0);
        before = kept[i];
    }
    close_range(before + 1, ~0u, 0);
    syscall(SYS_arch_prctl, 0x1023, 18);  // ask for AMX tiles; an error only means there are none

    catch_signals();
    char path[32] = "";
    if (!make_stack(head.n_in + head.n_out)) fail(HARNESS, "there is no memory for a stack");
    dlopen("libmvec.so.1", RTLD_LAZY);  // where there will be no other file than the kernel, what it needs is there
    int level = sandbox(&head, inside, library_fd, path);
    const struct omp_settings settings = omp_settings();
    void* library = dlopen(*path ? path : argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library_fd >= 0) close(library_fd);
    if (!library) fail(LOAD_ERROR, dlerror());
    int64_t (*workspace)(const evo_call*) = (int64_t(*)(const evo_call*))dlsym(library, "evo_workspace");
    int64_t (*packed_size)(const evo_call*) = (int64_t(*)(const evo_call*))dlsym(library, "evo_packed_bytes");
    int (*prepare)(const evo_call*, void*) = (int (*)(const evo_call*, void*))dlsym(library, "evo_prepare");
    int (*run)(const evo_call*) = (int (*)(const evo_call*))dlsym(library, "evo_run");
    uint64_t from, to;
    if (!run || !range_of((void*)run, &from, &to)) fail(LOAD_ERROR, "the kernel does not define evo_run");
    if (level && !filter_for_good(command_fd, reply_fd, tasks_fd, (void*)run)) fail(HARNESS, "the filter was refused");
    struct command* pad = malloc(sizeof *pad);
    if (!pad || !fill_with_random(pad, sizeof *pad)) fail(HARNESS, "there is no randomness");
    answer(OK, level, 0, 0, "");

    evo_call base = {1, head.n_in, head.n_const, head.n_out, head.threads, NULL, cst, NULL, NULL, NULL, 0};
    int64_t packed_bytes = 0;
    const struct region* packed = NULL;
    const uint64_t mode = float_mode();
    lent = random_bits();
    struct command command;
    for (;;) {
        read_all(&command, sizeof command);
        nonce = command.nonce ^ mask;
        command.nonce = 0;
        int code = 0;
        uint32_t done = 0;
        wipe_stack(nonce & 1 ? 0xff : 0x3f);  // as float32 NaN, or 0.747
        wipe_pool_stacks();
        evo_call* call = argue(&base, shapes, NULL, NULL);
        if (command.fill < 256) fill_new_memory(command.fill);
        if (command.op == INFO) {
            if (workspace) base.ws_bytes = call_on(stack_top, workspace, call, NULL);
            if (packed_size && prepare) packed_bytes = call_on(stack_top, packed_size, call, NULL);
            if (base.ws_bytes < 0 || packed_bytes < 0) fail(VIOLATION, "evo_workspace or evo_packed_bytes is negative");
            if ((uint64_t)base.ws_bytes > head.memory_bytes || (uint64_t)packed_bytes > head.memory_bytes ||
                (base.ws_bytes && !(base.ws = place_private(base.ws_bytes, WORKSPACE)))) {
                fail(OUT_OF_MEMORY, "the workspace or packed memory that it asks for exceeds the limit");
            }
        } else if (command.op == PREPARE) {
            if (packed_bytes) {
                if (!packed && place_private(packed_bytes, PACKED)) packed = &regions[n_regions - 1];
                if (!packed) fail(OUT_OF_MEMORY, "the packed memory that it asks for exceeds the limit");
                mprotect(packed->start, packed->end - packed->start, PROT_READ | PROT_WRITE);
                memset(packed->data, (int)command.fill, packed_bytes);
                code = (int)call_on(stack_top, prepare, call, packed->data);
                mprotect(packed->start, packed->end - packed->start, PROT_READ);
                base.packed = packed->data;
            }
        } else if (command.op == RUN) {
            if (!command.span || (uint64_t)command.base + command.span > head.n_sets) fail(HARNESS, "no such input set");
            if (!command.buffers || command.buffers > head.n_buffers) fail(HARNESS, "no such output buffer");
            if (command.fill < 256 && base.ws_bytes) memset(base.ws, (int)command.fill, base.ws_bytes);
            // What is asked for lies masked while the kernel runs.
            command.n ^= pad->n, command.start ^= pad->start, command.span ^= pad->span, command.base ^= pad->base;
            for (volatile uint32_t left = pad->op ^ command.n ^ pad->n; (left ^ pad->op) && !code; done++) {
                size_t set = (command.base ^ pad->base) + ((command.start ^ pad->start) + done) % (command.span ^ pad->span);
                argue(&base, shapes, inputs + set * head.n_in, outputs + (command.buffer + done) % command.buffers * head.n_out);
                code = (int)call_on(stack_top, run, call, NULL);
                left = ((left ^ pad->op) - 1) ^ pad->op;
            }
        } else if (command.op == READY) {
            if (command.span > head.n_sets) fail(HARNESS, "no such input set");
            wake_pool();
            read_through(regions, (size_t)command.span * head.n_in);
        } else if (command.op == OPEN) {
            open_inputs((uint64_t)command.start << 32 | command.n);
        } else {
            fail(HARNESS, "unknown command");
        }
        if (command.fill < 256) fill_new_memory(256);
        // The pool is asked where no time is taken: in verification, and before brief batches.
        const int asked = command.op == READY || (command.op == RUN && command.fill < 256);
        const uint64_t changed = (float_mode() ^ mode) | (asked ? changed_in_pool(mode) : 0);
        const struct omp_settings now = omp_settings();
        if (changed) fail(VIOLATION, left_changed(changed));
        if (clobbered) fail(VIOLATION, "did not give back a register that belongs to its caller (rbx, rbp, r12 to r15)");
        if (memcmp(&now, &settings, sizeof now)) fail(VIOLATION, "left OpenMP's settings changed (threads, dynamic, levels or schedule)");
        if (omp_get_level()) fail(VIOLATION, "left an OpenMP region without its end: its threads outlive the call");
        if (threads_left()) fail(VIOLATION, "a thread outlives the call");
        answer(code ? RETURNED : OK, code, command.op == INFO ? base.ws_bytes : done, packed_bytes,
               command.op == PREPARE ? "evo_prepare" : "evo_run");
    }
}
