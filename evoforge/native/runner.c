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
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#include <xmmintrin.h>

enum { PAGE = 4096, GUARD = 64 * PAGE, ALIGN = 64, MAGIC = 0x45564f31 };
enum { OK, RETURNED, LOAD_ERROR, OUT_OF_BOUNDS, VIOLATION, CRASH, OUT_OF_MEMORY, HARNESS };
enum { INFO = 1, PREPARE, RUN };
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
static volatile uint64_t nonce;
static struct region* regions;
static int n_regions;

static void answer(int status, int code, int64_t a, int64_t b, const char* text) {
    struct reply reply;
    memset(&reply, 0, sizeof reply);
    reply.nonce = nonce, reply.status = status, reply.code = code, reply.a = a, reply.b = b;
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
    int flags = MAP_FIXED | MAP_POPULATE | (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
    if (mmap(low + GUARD, length, prot, flags, fd, start) == MAP_FAILED) return NULL;
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

static void limit(int what, uint64_t value) {
    struct rlimit bound = {value, value};
    setrlimit(what, &bound);
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

static int landlock(const char* library) {
    struct landlock_ruleset_attr attributes = {.handled_access_fs = (1ull << 13) - 1};
    int rules = syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes, 0);
    if (rules < 0) return 0;
    struct landlock_path_beneath_attr rule = {
        .allowed_access = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_EXECUTE,
        .parent_fd = open(library, O_PATH | O_CLOEXEC),
    };
    int fine = !syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) &&
               !syscall(SYS_landlock_restrict_self, rules, 0);
    close(rule.parent_fd);
    close(rules);
    return fine;
}

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define DENY(error) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error))
#define IF_CALL(number, then_lines) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, then_lines)
#define PERMIT(number) IF_CALL(number, 1), ALLOW

static int seccomp(void) {
    const uint32_t writing = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_APPEND | (O_TMPFILE & ~O_DIRECTORY);
    struct sock_filter filter[] = {
        LOAD(arch), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        LOAD(nr),
        PERMIT(SYS_read), PERMIT(SYS_write), PERMIT(SYS_writev), PERMIT(SYS_close), PERMIT(SYS_pread64),
        PERMIT(SYS_fstat), PERMIT(SYS_newfstatat), PERMIT(SYS_lseek), PERMIT(SYS_mmap), PERMIT(SYS_munmap),
        PERMIT(SYS_mprotect), PERMIT(SYS_mremap), PERMIT(SYS_madvise), PERMIT(SYS_brk), PERMIT(SYS_futex),
        PERMIT(SYS_sched_yield), PERMIT(SYS_sched_getaffinity), PERMIT(SYS_rt_sigprocmask),
        PERMIT(SYS_rt_sigaction), PERMIT(SYS_rt_sigreturn), PERMIT(SYS_sigaltstack), PERMIT(SYS_set_robust_list),
        PERMIT(SYS_rseq), PERMIT(SYS_gettid), PERMIT(SYS_getpid), PERMIT(SYS_clock_gettime), PERMIT(SYS_getcpu),
        PERMIT(SYS_get_mempolicy), PERMIT(SYS_getrandom), PERMIT(SYS_sysinfo), PERMIT(SYS_uname),
        PERMIT(SYS_exit), PERMIT(SYS_exit_group), PERMIT(SYS_membarrier), PERMIT(SYS_getrlimit),
        IF_CALL(SYS_clone3, 1), DENY(ENOSYS),
        IF_CALL(SYS_clone, 4), LOAD(args[0]), BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1), ALLOW,
        DENY(EPERM),
        IF_CALL(SYS_openat, 4), LOAD(args[2]), BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, writing, 1, 0), ALLOW,
        DENY(EACCES),
        IF_CALL(SYS_prlimit64, 4), LOAD(args[2]), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1), ALLOW, DENY(EPERM),
        IF_CALL(SYS_tgkill, 4), LOAD(args[0]), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)getpid(), 0, 1), ALLOW,
        DENY(EPERM),
        DENY(EPERM),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

// Level 0: a separate process only. 1: limits and seccomp. 2: namespaces and landlock too.
// Returns the level reached.
static int sandbox(uint32_t level, uint64_t memory_bytes, const char* library) {
    if (level == 0) return 0;
    int strict = 0;
    if (level >= 2) {
        int spaces = unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWNS | CLONE_NEWUTS) == 0;
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        strict = landlock(library) && spaces;
    }
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_FSIZE, 0);
    limit(RLIMIT_STACK, 8 << 20);
    limit(RLIMIT_AS, mapped_bytes() + memory_bytes);
    return seccomp() ? 1 + strict : 0;
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
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    command_fd = atoi(argv[2]), reply_fd = atoi(argv[3]);
    struct header head;
    read_all(&head, sizeof head);
    if (head.magic != MAGIC || head.n_sets < 1) return 2;
    nonce = head.nonce;
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

    // Nothing stays open but the channel, which moves away from the numbers a kernel would try first.
    command_fd = fcntl(command_fd, F_DUPFD_CLOEXEC, 400 + (int)(head.nonce % 200));
    reply_fd = fcntl(reply_fd, F_DUPFD_CLOEXEC, 400 + (int)(head.nonce / 200 % 200));
    int first = command_fd < reply_fd ? command_fd : reply_fd, last = command_fd < reply_fd ? reply_fd : command_fd;
    if (first < 0) fail(HARNESS, "the channel could not be moved");
    close_range(3, first - 1, 0);
    if (last > first + 1) close_range(first + 1, last - 1, 0);
    close_range(last + 1, ~0u, 0);
    syscall(SYS_arch_prctl, 0x1023, 18);  // ask for AMX tiles; an error only means there are none

    catch_signals();
    int level = sandbox(head.level, head.memory_bytes, argv[1]);
    void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) fail(LOAD_ERROR, dlerror());
    int64_t (*workspace)(const evo_call*) = (int64_t(*)(const evo_call*))dlsym(library, "evo_workspace");
    int64_t (*packed_size)(const evo_call*) = (int64_t(*)(const evo_call*))dlsym(library, "evo_packed_bytes");
    int (*prepare)(const evo_call*, void*) = (int (*)(const evo_call*, void*))dlsym(library, "evo_prepare");
    int (*run)(const evo_call*) = (int (*)(const evo_call*))dlsym(library, "evo_run");
    if (!run) fail(LOAD_ERROR, "the kernel does not define evo_run");
    answer(OK, level, 0, 0, "");

    evo_call base = {1, head.n_in, head.n_const, head.n_out, head.threads, in, cst, out, NULL, NULL, 0};
    int64_t packed_bytes = 0;
    unsigned mode = float_mode();
    struct command command;
    for (;;) {
        read_all(&command, sizeof command);
        nonce = command.nonce;
        evo_call call = base;
        int code = 0;
        uint32_t done = 0;
        if (command.op == INFO) {
            if (workspace) base.ws_bytes = workspace(&call);
            if (packed_size && prepare) packed_bytes = packed_size(&call);
            if (base.ws_bytes < 0 || packed_bytes < 0) fail(VIOLATION, "evo_workspace or evo_packed_bytes is negative");
            if ((uint64_t)base.ws_bytes > head.memory_bytes || (uint64_t)packed_bytes > head.memory_bytes ||
                (base.ws_bytes && !(base.ws = place_private(base.ws_bytes, WORKSPACE)))) {
                fail(OUT_OF_MEMORY, "the workspace or packed memory that it asks for exceeds the limit");
            }
            answer(OK, 0, base.ws_bytes, packed_bytes, "");
        } else if (command.op == PREPARE) {
            if (packed_bytes) {
                char* packed = place_private(packed_bytes, PACKED);
                if (!packed) fail(OUT_OF_MEMORY, "the packed memory that it asks for exceeds the limit");
                call = base;
                code = prepare(&call, packed);
                const struct region* it = &regions[n_regions - 1];
                mprotect(it->start, it->end - it->start, PROT_READ);
                base.packed = packed;
            }
            answer(code ? RETURNED : OK, code, 0, 0, "evo_prepare");
        } else if (command.op == RUN) {
            if (!command.span || (uint64_t)command.base + command.span > head.n_sets) fail(HARNESS, "no such input set");
            if (command.fill < 256 && base.ws_bytes) memset(base.ws, (int)command.fill, base.ws_bytes);
            for (; done < command.n && !code; done++) {
                call = base;  // a kernel that writes to its argument harms one call
                uint32_t set = command.base + (command.start + done) % command.span;
                call.in = in + (size_t)set * head.n_in;
                call.out = out + (size_t)((command.buffer + done) & 1) * head.n_out;
                code = run(&call);
            }
            if (float_mode() != mode) fail(VIOLATION, "left the rounding, FTZ/DAZ or exception mode changed");
            answer(code ? RETURNED : OK, code, done, 0, "evo_run");
        } else {
            fail(HARNESS, "unknown command");
        }
    }
}
