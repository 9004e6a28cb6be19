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
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <ucontext.h>
#include <unistd.h>
#include <xmmintrin.h>

#include "runner_filter.h"
#include "runner_threads.h"
#include "sandbox.h"

enum { PAGE = 4096, GUARD = 64 * PAGE, ALIGN = 64, MAGIC = 0x45564f31 };
enum { OK, RETURNED, LOAD_ERROR, OUT_OF_BOUNDS, VIOLATION, CRASH, OUT_OF_MEMORY, HARNESS };
enum { INFO = 1, PREPARE, RUN };
enum { STACK = 8 << 20, STACK_GUARD = 64 << 20, MORE_THREADS = 64, CPU_SECONDS = 3600, POPULATE_WRITE = 23 };
enum { INPUT, CONSTANT, OUTPUT, WORKSPACE, PACKED };

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

struct header {
    uint32_t magic, level, threads, n_in, n_const, n_out, n_sets, n_cpus;
    uint64_t nonce, memory_bytes;
};
struct layout {  // one tensor: where its segment lies in its memfd
    int32_t rank, dtype;
    int64_t size[8], stride[8], start, length, data, nbytes;
};
struct command {
    uint64_t nonce;
    uint32_t op, n, start, buffer, fill, base, span, unused;
};
struct reply {
    uint64_t nonce;
    int32_t status, code;
    int64_t a, b;
    char text[224];
};
struct region {
    char *low, *start, *end, *high, *data;  // guard | segment | guard
    int64_t nbytes;
    int kind, index;
};

static int command_fd, reply_fd;
static volatile uint64_t nonce, mask;  // the nonce is kept masked
static struct region* regions;
static int n_regions;

static void answer(int status, int code, int64_t a, int64_t b, const char* text) {
    struct reply reply;
    memset(&reply, 0, sizeof reply);
    reply.nonce = nonce ^ mask, reply.status = status, reply.code = code, reply.a = a, reply.b = b;
    strncpy(reply.text, text, sizeof reply.text - 1);
    if (write(reply_fd, &reply, sizeof reply) != sizeof reply) _exit(9);
}

static void fail(int status, const char* text) {
    answer(status, 0, 0, 0, text);
    _exit(3);
}

static void read_all(void* into, size_t bytes) {
    for (char* at = into; bytes;) {
        ssize_t got = read(command_fd, at, bytes);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) _exit(0);  // the judge closed the channel
        at += got, bytes -= got;
    }
}

// A segment with inaccessible pages on both sides. fd < 0: fresh private memory.
static char* place(int fd, int64_t start, int64_t length, int64_t data, int64_t nbytes, int prot, int kind, int index) {
    char* low = mmap(NULL, length + 2 * GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (low == MAP_FAILED) return NULL;
    if (fd < 0) {  // the filter lets nothing be mapped at a given place any more
        if (mprotect(low + GUARD, length, prot)) return NULL;
        madvise(low + GUARD, length, POPULATE_WRITE);
    } else if (mmap(low + GUARD, length, prot, MAP_FIXED | MAP_POPULATE | MAP_SHARED, fd, start) == MAP_FAILED) {
        return NULL;
    }
    struct region* it = &regions[n_regions++];
    it->low = low, it->start = low + GUARD, it->end = it->start + length, it->high = it->end + GUARD;
    it->data = it->start + (data - start), it->nbytes = nbytes, it->kind = kind, it->index = index;
    return it->data;
}

static char* place_private(int64_t nbytes, int kind) {
    int64_t used = (nbytes + ALIGN - 1) / ALIGN * ALIGN, length = (used + PAGE - 1) / PAGE * PAGE;
    return place(-1, 0, length, length - used, nbytes, PROT_READ | PROT_WRITE, kind, 0);
}

static const char* const kinds[] = {"in", "cst", "out", "the workspace", "the packed memory"};

static void on_signal(int number, siginfo_t* info, void* context) {
    ucontext_t* state = context;
    if (number == SIGSYS && info->si_code == 1) {
        char called[80];
        snprintf(called, sizeof called, "made system call %d, which a kernel may not", info->si_syscall);
        fail(VIOLATION, called);
    }
    char* address = info->si_addr;
    int memory = (number == SIGSEGV && info->si_code > 0 && info->si_code != SI_KERNEL) || number == SIGBUS;
    int writing = (state->uc_mcontext.gregs[REG_ERR] & 2) != 0;
    char text[224], name[40];
    for (int i = 0; memory && i < n_regions; i++) {
        const struct region* it = &regions[i];
        if (address < it->low || address >= it->high) continue;
        if (it->kind <= OUTPUT) snprintf(name, sizeof name, "%s%d", kinds[it->kind], it->index);
        else snprintf(name, sizeof name, "%s", kinds[it->kind]);
        if (address >= it->start && address < it->end) {
            snprintf(text, sizeof text, "wrote to %s, which is read-only", name);
            fail(writing ? VIOLATION : CRASH, text);
        }
        int before = address < it->start;
        long far = before ? it->data - address : address - (it->data + it->nbytes);
        snprintf(text, sizeof text, "%s %ld bytes %s %s", writing ? "wrote" : "read", far,
                 before ? "before the start of" : "past the end of", name);
        fail(OUT_OF_BOUNDS, text);
    }
    void* probe = mmap(NULL, 1 << 26, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (probe == MAP_FAILED) fail(OUT_OF_MEMORY, "the memory limit was reached");
    char* stack = (char*)state->uc_mcontext.gregs[REG_RSP];
    if (memory && address > stack - (1 << 20) && address < stack + (1 << 16)) {
        snprintf(text, sizeof text, "stack overflow");
    } else if (number == SIGSEGV && info->si_code == SI_KERNEL) {
        snprintf(text, sizeof text, "segmentation fault (a wild or misaligned address)");
    } else if (memory) {
        snprintf(text, sizeof text, "segmentation fault %s address %p", writing ? "writing to" : "reading from", address);
    } else {
        snprintf(text, sizeof text, "killed by signal %d (%s)", number, strsignal(number));
    }
    fail(CRASH, text);
}

static void catch_signals(void) {
    static char stack[1 << 16];
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&alternate, NULL);
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) sigaction(numbers[i], &action, NULL);
}

static uint64_t mapped_bytes(void) {
    char text[64] = "";
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        if (read(fd, text, sizeof text - 1) < 0) text[0] = 0;
        close(fd);
    }
    return strtoull(text, NULL, 10) * PAGE;
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
static int sandbox(const struct header* head, int inside, int library_fd, char path[32]) {
    if (head->level == 0) return 0;
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
    return filter_for_loading() ? 1 + strict : 0;
}

// Calls a function on a stack of its own, with the other registers empty: what the runner keeps on its
// stack and in registers (how many calls are left, the nonce) is not what a kernel finds first.
static char* saved_stack __attribute__((used));

__attribute__((naked, noinline)) static int64_t call_on(char* stack, void* function, const void* first, void* second) {
    (void)stack, (void)function, (void)first, (void)second;
    __asm__("push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
            "mov %rsp, saved_stack(%rip)\n mov %rdi, %rsp\n mov %rsi, %rax\n mov %rdx, %rdi\n mov %rcx, %rsi\n"
            "xor %ebx, %ebx\n xor %ebp, %ebp\n xor %ecx, %ecx\n xor %edx, %edx\n xor %r8d, %r8d\n xor %r9d, %r9d\n"
            "xor %r10d, %r10d\n xor %r11d, %r11d\n xor %r12d, %r12d\n xor %r13d, %r13d\n xor %r14d, %r14d\n"
            "xor %r15d, %r15d\n push $0\n push $0\n call *%rax\n"  // no caller above: an exception ends here
            "mov saved_stack(%rip), %rsp\n pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret");
}

// The stack on which kernels run, between inaccessible pages, at a random place; their argument lies above it.
static char* new_stack(evo_call** argument) {
    uint16_t offset = 0;
    char* low = mmap(NULL, STACK + 2 * STACK_GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (low == MAP_FAILED || mprotect(low + STACK_GUARD, STACK, PROT_READ | PROT_WRITE)) return NULL;
    if (getrandom(&offset, sizeof offset, 0) < 0) offset = 0;
    char* top = low + STACK_GUARD + STACK - 256 - (offset & 0x3fc0);
    *argument = (evo_call*)top;
    return top;
}

static evo_tensor* describe(const struct layout* layouts, int count, int copies) {
    evo_tensor* tensors = calloc((size_t)count * copies + 1, sizeof *tensors);
    for (int i = 0; i < count * copies; i++) {
        const struct layout* from = &layouts[i % count];
        memcpy(tensors[i].size, from->size, sizeof from->size);
        memcpy(tensors[i].stride, from->stride, sizeof from->stride);
        tensors[i].rank = from->rank, tensors[i].dtype = from->dtype;
    }
    return tensors;
}

static void map_tensors(const struct layout* layouts, int count, int copies, const int32_t* fds, int prot, int kind,
                        evo_tensor* tensors) {
    for (int copy = 0; copy < copies; copy++) {
        for (int i = 0; i < count; i++) {
            const struct layout* it = &layouts[i];
            void* data = place(fds[copy], it->start, it->length, it->data, it->nbytes, prot, kind, i);
            if (!data) fail(OUT_OF_MEMORY, "the tensors could not be mapped");
            tensors[copy * count + i].data = data;
        }
    }
}

static unsigned float_mode(void) {
    unsigned short x87;
    __asm__ volatile("fnstcw %0" : "=m"(x87));
    return (_mm_getcsr() & 0xffc0u) << 16 | x87;  // without the sticky exception flags
}

int main(int argc, char** argv) {
    if (argc != 4) return 2;
    die_with_parent();
    command_fd = atoi(argv[2]), reply_fd = atoi(argv[3]);
    struct header head;
    read_all(&head, sizeof head);
    if (head.magic != MAGIC || head.n_sets < 1) return 2;
    if (getrandom((void*)&mask, sizeof mask, 0) != sizeof mask) return 2;
    nonce = head.nonce ^ mask;
    be_expendable();
    int library_fd = head.level >= 2 ? copy_of(argv[1]) : -1, inside = 0;
    if (library_fd >= 0) {
        stop_being_root();
        inside = enter_namespaces();
    }
    int n_tensors = head.n_in + head.n_const + head.n_out, n_fds = head.n_sets + 3;
    int32_t* cpus = malloc((head.n_cpus + 1) * sizeof *cpus);
    int32_t* fds = malloc(n_fds * sizeof *fds);  // input sets, constants, two output buffers
    struct layout* layouts = malloc((n_tensors + 1) * sizeof *layouts);
    read_all(cpus, head.n_cpus * sizeof *cpus);
    read_all(fds, n_fds * sizeof *fds);
    read_all(layouts, n_tensors * sizeof *layouts);
    regions = calloc((size_t)head.n_in * head.n_sets + head.n_const + 2 * head.n_out + 2, sizeof *regions);

    if (head.n_cpus) {
        cpu_set_t set;
        CPU_ZERO(&set);
        for (uint32_t i = 0; i < head.n_cpus; i++) CPU_SET(cpus[i], &set);
        sched_setaffinity(0, sizeof set, &set);
    }
    const struct layout *of_in = layouts, *of_const = layouts + head.n_in, *of_out = of_const + head.n_const;
    evo_tensor* in = describe(of_in, head.n_in, head.n_sets);
    evo_tensor* cst = describe(of_const, head.n_const, 1);
    evo_tensor* out = describe(of_out, head.n_out, 2);
    map_tensors(of_in, head.n_in, head.n_sets, fds, PROT_READ, INPUT, in);
    map_tensors(of_const, head.n_const, 1, fds + head.n_sets, PROT_READ, CONSTANT, cst);
    map_tensors(of_out, head.n_out, 2, fds + head.n_sets + 1, PROT_READ | PROT_WRITE, OUTPUT, out);

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
    evo_call* call = NULL;
    char path[32] = "", *stack = new_stack(&call);
    if (!stack) fail(HARNESS, "there is no memory for a stack");
    int level = sandbox(&head, inside, library_fd, path);
    void* library = dlopen(*path ? path : argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library_fd >= 0) close(library_fd);
    if (!library) fail(LOAD_ERROR, dlerror());
    int64_t (*workspace)(const evo_call*) = (int64_t(*)(const evo_call*))dlsym(library, "evo_workspace");
    int64_t (*packed_size)(const evo_call*) = (int64_t(*)(const evo_call*))dlsym(library, "evo_packed_bytes");
    int (*prepare)(const evo_call*, void*) = (int (*)(const evo_call*, void*))dlsym(library, "evo_prepare");
    int (*run)(const evo_call*) = (int (*)(const evo_call*))dlsym(library, "evo_run");
    if (!run) fail(LOAD_ERROR, "the kernel does not define evo_run");
    if (level && !filter_for_good(command_fd, reply_fd, tasks_fd)) fail(HARNESS, "the filter was refused");
    answer(OK, level, 0, 0, "");

    evo_call base = {1, head.n_in, head.n_const, head.n_out, head.threads, in, cst, out, NULL, NULL, 0};
    int64_t packed_bytes = 0;
    unsigned mode = float_mode();
    struct command command, *pad = malloc(sizeof *pad);
    if (!pad || getrandom(pad, sizeof *pad, 0) != sizeof *pad) fail(HARNESS, "there is no randomness");
    for (;;) {
        read_all(&command, sizeof command);
        nonce = command.nonce ^ mask;
        command.nonce = 0;
        int code = 0;
        uint32_t done = 0;
        *call = base;
        if (command.op == INFO) {
            if (workspace) base.ws_bytes = call_on(stack, workspace, call, NULL);
            if (packed_size && prepare) packed_bytes = call_on(stack, packed_size, call, NULL);
            if (base.ws_bytes < 0 || packed_bytes < 0) fail(VIOLATION, "evo_workspace or evo_packed_bytes is negative");
            if ((uint64_t)base.ws_bytes > head.memory_bytes || (uint64_t)packed_bytes > head.memory_bytes ||
                (base.ws_bytes && !(base.ws = place_private(base.ws_bytes, WORKSPACE)))) {
                fail(OUT_OF_MEMORY, "the workspace or packed memory that it asks for exceeds the limit");
            }
        } else if (command.op == PREPARE) {
            if (packed_bytes) {
                char* packed = place_private(packed_bytes, PACKED);
                if (!packed) fail(OUT_OF_MEMORY, "the packed memory that it asks for exceeds the limit");
                code = (int)call_on(stack, prepare, call, packed);
                const struct region* it = &regions[n_regions - 1];
                mprotect(it->start, it->end - it->start, PROT_READ);
                base.packed = packed;
            }
        } else if (command.op == RUN) {
            if (!command.span || (uint64_t)command.base + command.span > head.n_sets) fail(HARNESS, "no such input set");
            if (command.fill < 256 && base.ws_bytes) memset(base.ws, (int)command.fill, base.ws_bytes);
            // What is asked for lies masked while the kernel runs.
            command.n ^= pad->n, command.start ^= pad->start, command.span ^= pad->span, command.base ^= pad->base;
            for (volatile uint32_t left = pad->op ^ command.n ^ pad->n; (left ^ pad->op) && !code; done++) {
                uint32_t set = (command.base ^ pad->base) + ((command.start ^ pad->start) + done) % (command.span ^ pad->span);
                *call = base;  // a kernel that writes to its argument harms one call
                call->in = in + (size_t)set * head.n_in;
                call->out = out + (size_t)((command.buffer + done) & 1) * head.n_out;
                code = (int)call_on(stack, run, call, NULL);
                left = ((left ^ pad->op) - 1) ^ pad->op;
            }
        } else {
            fail(HARNESS, "unknown command");
        }
        if (float_mode() != mode) fail(VIOLATION, "left the rounding, FTZ/DAZ or exception mode changed");
        if (threads_left()) fail(VIOLATION, "a thread outlives the call");
        answer(code ? RETURNED : OK, code, command.op == INFO ? base.ws_bytes : done, packed_bytes,
               command.op == PREPARE ? "evo_prepare" : "evo_run");
    }
}
