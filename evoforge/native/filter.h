// Writing a seccomp filter down, for runner_filter.h and launch.c.
#pragma once
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>

#include "sandbox.h"

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define LOAD_UPPER(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field) + 4)
#define RETURN(what) BPF_STMT(BPF_RET | BPF_K, what)
#define ALLOW RETURN(SECCOMP_RET_ALLOW)
#define ERROR(number) RETURN(SECCOMP_RET_ERRNO | (number))
#define TRAP RETURN(SECCOMP_RET_TRAP)
#define IF_CALL(number, lines) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, lines)
#define PERMIT(number) IF_CALL(number, 1), ALLOW
#define REFUSE(number, error) IF_CALL(number, 1), ERROR(error)
#define IF_EQUAL(value) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1)
#define IF_ANY(bits) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1)
// Limits may be read: a null pointer to new ones, in both of its halves.
#define READING_LIMITS(otherwise)                                                                        \
    IF_CALL(SYS_prlimit64, 7), LOAD(args[2]), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0), otherwise,   \
        LOAD_UPPER(args[2]), IF_EQUAL(0), ALLOW, otherwise
// Advice on one's own memory, and not that a page of the machine's is broken.
#define ADVICE                                                                                           \
    IF_CALL(SYS_madvise, 4), LOAD(args[2]), BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, MADV_HWPOISON, 0, 1), ERROR(EINVAL), ALLOW
#define START                                                                       \
    LOAD(arch), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),       \
        RETURN(SECCOMP_RET_KILL_PROCESS), LOAD(nr)

enum {
    OTHER_SPACES = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |
                   CLONE_NEWNET | CLONE_VFORK | CLONE_PTRACE,
};

static inline int set_filter(struct sock_filter* lines, size_t bytes) {
    struct sock_fprog program = {bytes / sizeof *lines, lines};
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}
