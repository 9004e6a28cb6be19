// Which threads are there that should not be. OpenMP's pool lives on between calls; what a kernel starts
// itself must have ended when its batch does.
#pragma once
#include <dlfcn.h>
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>

#include "sandbox.h"

static int tasks_fd = -1;  // /proc/self/task: its link count follows the number of threads
static atomic_int pool_threads;

struct pool_thread {
    void* (*body)(void*);
    void* argument;
};

static void leave_pool(void* unused) {
    (void)unused;
    atomic_fetch_sub(&pool_threads, 1);
}

static void* in_pool(void* given) {
    struct pool_thread it = *(struct pool_thread*)given;
    void* result;
    free(given);
    pthread_cleanup_push(leave_pool, NULL);
    result = it.body(it.argument);
    pthread_cleanup_pop(1);
    return result;
}

// Stands before libc's, for the libraries too: a thread that libgomp makes belongs to the pool.
__attribute__((visibility("default"))) int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                                                          void* (*body)(void*), void* argument) {
    static int (*create)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
    static const void* openmp;
    Dl_info from;
    if (!create) {
        if (dladdr((void*)omp_get_num_threads, &from)) openmp = from.dli_fbase;
        create = (int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*))dlsym(RTLD_NEXT, "pthread_create");
    }
    if (!dladdr(__builtin_return_address(0), &from) || from.dli_fbase != openmp) {
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

// Whether a thread is left over. One that was joined may take a moment to vanish.
static int threads_left(void) {
    for (int i = 0; i < 20000; i++) {
        if (threads_now() <= 1 + atomic_load(&pool_threads)) return 0;
        sched_yield();
    }
    return 1;
}
