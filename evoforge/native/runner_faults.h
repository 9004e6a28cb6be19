// What the runner says: answers to commands, and how a kernel failed, as far as a signal tells.
#pragma once
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <ucontext.h>
#include <unistd.h>

#include "runner_memory.h"

enum { OK, RETURNED, LOAD_ERROR, OUT_OF_BOUNDS, VIOLATION, CRASH, OUT_OF_MEMORY, HARNESS };

struct reply {
    uint64_t nonce;
    int32_t status, code;
    int64_t a, b;
    char text[224];
};

static int reply_fd;
static volatile uint64_t nonce, mask;  // the nonce is kept masked

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

static const char* const kinds[] = {"in", "cst", "out", "the workspace", "the packed memory"};

static uint64_t time_from, time_to;  // where the vdso found the time, before it was taken away

// By rdtsc or rdtscp, which the vdso's clock uses too, or where that one found the time.
static int reads_clock(const siginfo_t* info, const uint8_t* code) {
    const uint64_t address = (uint64_t)info->si_addr;
    if (info->si_code == SEGV_MAPERR) return address >= time_from && address < time_to;
    return info->si_code == SI_KERNEL && code[0] == 0x0f && (code[1] == 0x31 || (code[1] == 0x01 && code[2] == 0xf9));
}

static void on_signal(int number, siginfo_t* info, void* context) {
    ucontext_t* state = context;
    if (number == SIGSYS && info->si_code == 1) {
        char called[80];
        snprintf(called, sizeof called, "made system call %d, which a kernel may not", info->si_syscall);
        fail(VIOLATION, called);
    }
    if (number == SIGSEGV && reads_clock(info, (void*)state->uc_mcontext.gregs[REG_RIP])) {
        fail(VIOLATION, "read the clock, which a kernel has no use for");
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
            if (writing) snprintf(text, sizeof text, "wrote to %s, which is read-only", name);
            else snprintf(text, sizeof text, "read %s, which is there for evo_run only", name);
            fail(VIOLATION, text);
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
