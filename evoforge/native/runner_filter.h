// The system calls of a kernel. Two filters: one for as long as its library loads, then a narrower one for good.
// Calls that libraries try and can do without get an error; what only an attack does ends the process.
#pragma once
#include <link.h>
#include <sys/mman.h>

#include "filter.h"
#include "runner_memory.h"

// 32 and 33, which pthread_create sets up for itself.
#define IF_SIGNAL_OF_LIBC BPF_STMT(BPF_ALU | BPF_OR | BPF_K, 1), IF_EQUAL(33)
// What threads, the allocator and the end of a process need.
#define EVERYDAY                                                                                              \
    PERMIT(SYS_futex), PERMIT(SYS_munmap), ADVICE, PERMIT(SYS_brk), PERMIT(SYS_sched_yield),     \
        PERMIT(SYS_mincore), PERMIT(SYS_sched_getaffinity), PERMIT(SYS_rt_sigprocmask), PERMIT(SYS_rt_sigreturn),                  \
        PERMIT(SYS_set_robust_list), PERMIT(SYS_rseq), PERMIT(SYS_gettid), PERMIT(SYS_getpid),                \
        PERMIT(SYS_clock_gettime), PERMIT(SYS_getcpu), PERMIT(SYS_getrandom), PERMIT(SYS_exit),               \
        PERMIT(SYS_exit_group), PERMIT(SYS_membarrier), PERMIT(SYS_restart_syscall), PERMIT(SYS_sysinfo),     \
        REFUSE(SYS_clone3, ENOSYS), REFUSE(SYS_mremap, ENOMEM), REFUSE(SYS_ioctl, ENOTTY),                    \
        REFUSE(SYS_lseek, ESPIPE), REFUSE(SYS_readlink, EACCES), REFUSE(SYS_sched_setaffinity, EPERM),        \
        REFUSE(SYS_get_mempolicy, EPERM), REFUSE(SYS_clock_nanosleep, EPERM), REFUSE(SYS_access, EACCES),     \
        IF_CALL(SYS_clone, 6), LOAD(args[0]), IF_ANY(OTHER_SPACES), TRAP, IF_ANY(CLONE_THREAD), ALLOW, TRAP,  \
        IF_CALL(SYS_rt_sigaction, 5), LOAD(args[0]), IF_SIGNAL_OF_LIBC, ALLOW, TRAP,                           \
        READING_LIMITS(TRAP),                                                                                 \
        IF_CALL(SYS_tgkill, 4), LOAD(args[0]), IF_EQUAL((uint32_t)getpid()), ALLOW, TRAP

#define INSTRUCTION_HIGH BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer) + 4)
// With the upper half of the instruction's address loaded: refuses code from `first` to `last`, equal in that half.
#define FROM_CODE(first, last)                                                                   \
    INSTRUCTION_HIGH, BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)((first) >> 32), 0, 4),      \
        LOAD(instruction_pointer), BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (uint32_t)(first), 0, 2), \
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, (uint32_t)(last), 1, 0), TRAP

struct range {
    uint64_t inside, from, to;
};

static int take_range(struct dl_phdr_info* info, size_t size, void* into) {
    (void)size;
    struct range* it = into;
    uint64_t from = UINT64_MAX, to = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr)* part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD) continue;
        uint64_t low = info->dlpi_addr + part->p_vaddr, high = low + part->p_memsz;
        from = low < from ? low : from, to = high > to ? high : to;
    }
    if (it->inside < from || it->inside >= to) return 0;
    it->from = from, it->to = to;
    return 1;
}

// Where the library lies that has this address.
static int range_of(void* address, uint64_t* from, uint64_t* to) {
    struct range it = {(uint64_t)address, 0, 0};
    int found = dl_iterate_phdr(take_range, &it);
    *from = it.from, *to = it.to;
    return found;
}

// Refuses what has no key, from an address in the runner's image, in the closed zone or in the one below it, from where
// it could reach into that.
#define UPPER(at) ((uint32_t)((at) >> 32))
#define IN_ZONE(from, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, UPPER(from), yes, no)
#define NEEDS_KEY(key)                                                                                          \
    LOAD_UPPER(args[0]), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, UPPER((uint64_t)(uintptr_t)&regions), 7, 0),       \
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, ~(UPPER(SPREAD) - 1)), IN_ZONE(zone(1), 1, 0),                      \
        IN_ZONE(zone(1) - SPREAD, 0, 5), LOAD(args[4]), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(key), 0, 2), \
        LOAD_UPPER(args[4]), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, UPPER(key), 1, 0), TRAP

// From here on the closed zone, and what is read-only in the runner's image, stay so for who has not got the key.
static int filter_for_loading(volatile uint64_t* key) {
    const uint32_t writing = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_APPEND | (O_TMPFILE & ~O_DIRECTORY);
    struct sock_filter lines[] = {
        START, EVERYDAY, PERMIT(SYS_read), PERMIT(SYS_write), PERMIT(SYS_writev), PERMIT(SYS_close),
        PERMIT(SYS_pread64), PERMIT(SYS_fstat), PERMIT(SYS_newfstatat), PERMIT(SYS_mmap),
        IF_CALL(SYS_mprotect, 11), NEEDS_KEY(*key), ALLOW,
        IF_CALL(SYS_seccomp, 4), LOAD(args[0]), IF_EQUAL(SECCOMP_SET_MODE_FILTER), ALLOW, TRAP,
        IF_CALL(SYS_openat, 4), LOAD(args[2]), IF_ANY(writing), ERROR(EACCES), ALLOW,
        TRAP,
    };
    const int fine = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && set_filter(lines, sizeof lines);
    explicit_bzero(lines, sizeof lines);
    *key = 0;
    return fine;
}

// Nothing executable appears any more, and only the channel and what is printed can be written to.
// A system call from the kernel's own code, which the screen found to have none, is made of something else's bytes.
static int filter_for_good(int command_fd, int reply_fd, int tasks_fd, void* in_kernel) {
    uint64_t from = 0, to = 0;
    if (!range_of(in_kernel, &from, &to)) return 0;
    const uint64_t last = to - 1;
    const int one_piece = last >> 32 == from >> 32;  // the filter compares halves of addresses
    struct sock_filter lines[] = {
        START, FROM_CODE(from, one_piece ? last : from | UINT32_MAX),
        FROM_CODE(one_piece ? from : last >> 32 << 32, last), LOAD(nr), IF_CALL(SYS_clock_gettime, 1), TRAP,
        EVERYDAY, REFUSE(SYS_openat, EACCES), REFUSE(SYS_newfstatat, EACCES),
        IF_CALL(SYS_read, 4), LOAD(args[0]), IF_EQUAL((uint32_t)command_fd), ALLOW, TRAP,
        IF_CALL(SYS_write, 8), LOAD(args[0]), IF_EQUAL((uint32_t)reply_fd), ALLOW, IF_EQUAL(1), ALLOW, IF_EQUAL(2),
        ALLOW, TRAP,
        IF_CALL(SYS_writev, 6), LOAD(args[0]), IF_EQUAL(1), ALLOW, IF_EQUAL(2), ALLOW, TRAP,
        IF_CALL(SYS_fstat, 4), LOAD(args[0]), IF_EQUAL((uint32_t)tasks_fd), ALLOW, ERROR(EACCES),
        IF_CALL(SYS_mprotect, 4), LOAD(args[2]), IF_ANY(PROT_EXEC), TRAP, ALLOW,
        IF_CALL(SYS_mmap, 7), LOAD(args[2]), IF_ANY(PROT_EXEC), TRAP, LOAD(args[3]),
        IF_ANY(MAP_FIXED | MAP_FIXED_NOREPLACE), ERROR(EPERM), ALLOW,
        TRAP,
    };
    return set_filter(lines, sizeof lines);
}
