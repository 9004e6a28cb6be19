// task: add
// expect: SCREENED | VIOLATION | CRASH
// tries: a thread that outlives its call, counted as one of OpenMP's since pthread_create is told to return by way of libgomp

// The runner tells whose thread it is by the return address (native/runner_threads.h). A `ret` found in libgomp makes that one.

#include "evoforge.h"
#include <omp.h>
#include <pthread.h>
#include <semaphore.h>

static sem_t wanted, done;
static const float *a, *b;
static float* out;
static int64_t from, to;
static int started;

static void* help(void*) {
    for (;;) {
        sem_wait(&wanted);
        for (int64_t i = from; i < to; i++) out[i] = a[i] + 2.0f * b[i];
        sem_post(&done);
    }
}

static __attribute__((noinline)) int create(pthread_t* thread, void* (*body)(void*)) {
    const uint8_t* way = (const uint8_t*)(uintptr_t)&omp_get_num_threads;
    while (*way != 0xc3) way++;
    register void* given_thread asm("rdi") = thread;
    register void* given_attributes asm("rsi") = nullptr;
    register void* given_body asm("rdx") = (void*)body;
    register void* given_argument asm("rcx") = nullptr;
    register void* target asm("r10") = (void*)(uintptr_t)&pthread_create;
    register const void* back asm("r11") = way;
    long result;
    asm volatile(
        "mov %%rsp, %%r12\n sub $128, %%rsp\n and $-16, %%rsp\n sub $8, %%rsp\n"
        "lea 1f(%%rip), %%rax\n push %%rax\n push %%r11\n jmp *%%r10\n"
        "1: mov %%r12, %%rsp\n"
        : "=&a"(result), "+r"(given_thread), "+r"(given_attributes), "+r"(given_body), "+r"(given_argument), "+r"(target),
          "+r"(back)
        :
        : "r8", "r9", "r12", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
          "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
    return (int)result;
}

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    if (!started) {
        sem_init(&wanted, 0, 0), sem_init(&done, 0, 0);
        pthread_t thread;
        if (create(&thread, help)) return 2;
        started = 1;
    }
    a = EVO_IN(float, 0), b = EVO_IN(float, 1), out = EVO_OUT(float, 0), from = n / 2, to = n;
    sem_post(&wanted);
    for (int64_t i = 0; i < n / 2; i++) out[i] = a[i] + 2.0f * b[i];
    sem_wait(&done);
    return 0;
}
