// Which threads are there that should not be. OpenMP's pool lives on between calls; what a kernel starts
// itself must have ended when its batch does.
#pragma once
#include <dlfcn.h>
#include <linux/futex.h>
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>

#include "runner_memory.h"
#include "sandbox.h"

enum { MOST_POOL_THREADS = 1024, POOL_STACK_KEPT = 4 << 10, WAKING_REGIONS = 4, WAKING_PAUSES = 3000, LINE = 64 };

static int tasks_fd = -1;  // /proc/self/task: its link count follows the number of threads
static atomic_int pool_threads;

// Where the stacks of the pool's threads begin, and how much of each may be wiped while its thread waits.
static struct {
    char* low;
    size_t length;
} pool_stacks[MOST_POOL_THREADS];

// Below what a waiting thread of libgomp stands on: its few frames under `frame`, for which symbols are bound early.
static void know_stack(int at, const char* frame) {
    pthread_attr_t about;
    void* low;
    size_t length;
    if (at >= MOST_POOL_THREADS || pthread_getattr_np(pthread_self(), &about)) return;
    if (!pthread_attr_getstack(&about, &low, &length) && frame - (char*)low > POOL_STACK_KEPT) {
        pool_stacks[at].length = (frame - (char*)low - POOL_STACK_KEPT) / PAGE * PAGE, pool_stacks[at].low = low;
    }
    pthread_attr_destroy(&about);
}

// What a kernel left deep in the stacks of the pool is not there when the next command comes.
static void wipe_pool_stacks(void) {
    for (int i = 0; i < MOST_POOL_THREADS; i++) {
        if (pool_stacks[i].low) madvise(pool_stacks[i].low, pool_stacks[i].length, MADV_DONTNEED);
    }
}

// Threads that have slept wake on a core that is somebody else's, and without real-time priority take tens of
// milliseconds to part: the pool's do so here, before a kernel's calls are timed.
static void wake_pool(void) {
    const int all = 1 + atomic_load(&pool_threads);
    for (int region = 0; region < WAKING_REGIONS && all > 1; region++) {
#pragma omp parallel num_threads(all)
        for (int i = 0; i < WAKING_PAUSES; i++) _mm_pause();
    }
}

// Every thread reads the first regions, which are inputs, so that they lie in the caches near it as in a long batch.
static void read_through(const struct region* inputs, size_t count) {
    const int all = 1 + atomic_load(&pool_threads);
#pragma omp parallel num_threads(all)
    for (size_t i = 0; i < count; i++) {
        for (const volatile char* at = inputs[i].start; at < inputs[i].end; at += LINE) (void)*at;
    }
}

struct pool_thread {
    void* (*body)(void*);
    void* argument;
};

static void leave_pool(void* slot) {
    int at = (int)(intptr_t)slot;
    if (at < MOST_POOL_THREADS) pool_stacks[at].low = NULL;
    atomic_fetch_sub(&pool_threads, 1);
}

static void* in_pool(void* given) {
    struct pool_thread it = *(struct pool_thread*)given;
    void* result;
    static atomic_int count;
    const int slot = atomic_fetch_add(&count, 1);
    free(given);
    know_stack(slot, __builtin_frame_address(0));
    pthread_cleanup_push(leave_pool, (void*)(intptr_t)slot);
    result = it.body(it.argument);
    pthread_cleanup_pop(1);
    return result;
}

static int is_within(const void* library, const void* code) {
    Dl_info from;
    return dladdr(code, &from) && from.dli_fbase == library;
}

// Stands before libc's, for the libraries too: a thread that libgomp makes belongs to the pool. The way back can be
// forged: what such a thread runs is libgomp's as well.
__attribute__((visibility("default"))) int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                                                          void* (*body)(void*), void* argument) {
    static int (*create)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
    static const void* openmp;
    Dl_info from;
    if (!create) {
        if (dladdr((void*)omp_get_num_threads, &from)) openmp = from.dli_fbase;
        create = (int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*))dlsym(RTLD_NEXT, "pthread_create");
    }
    if (!is_within(openmp, __builtin_return_address(0)) || !is_within(openmp, (const void*)body)) {
        return create(thread, attributes, body, argument);
    }
    struct pool_thread* it = malloc(sizeof *it);
    if (!it) return EAGAIN;
    it->body = body, it->argument = argument;
    atomic_fetch_add(&pool_threads, 1);
    int error = create(thread, attributes, in_pool, it);
    if (error) atomic_fetch_sub(&pool_threads, 1), free(it);
    return error;
}

static int threads_now(void) {
    struct stat about;
    if (tasks_fd < 0) return 0;
    return syscall(SYS_fstat, tasks_fd, &about) ? 1 << 20 : (int)about.st_nlink - 2;  // libc's makes another call
}

// Whether a thread is left over. One that was joined may take a moment to vanish. On a busy machine a yield takes as
// long as somebody else's turn, so most of the patience is counted in milliseconds, asleep.
static int threads_left(void) {
    static const struct timespec a_millisecond = {0, 1000000};
    static int never_woken;
    for (int i = 0; i < 1250; i++) {
        if (threads_now() <= 1 + atomic_load(&pool_threads)) return 0;
        if (i < 1000) sched_yield();
        else syscall(SYS_futex, &never_woken, FUTEX_WAIT_PRIVATE, 0, &a_millisecond, NULL, 0);
    }
    return 1;
}
