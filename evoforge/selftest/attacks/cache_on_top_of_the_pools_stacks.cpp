// task: row_sum
// expect: WRONG | SCREENED | VIOLATION | TIMING_SUSPECT | CRASH
// twin: sum_plain
// tries: results kept in the upper part of the stack of a thread of the pool
#include "evoforge.h"
#include <string.h>
static __attribute__((noinline)) void sums(const float* x, float* out) {
    constexpr int64_t M = EVO_SIZE(in0, 0), N = EVO_SIZE(in0, 1);
    for (int64_t i = 0; i < M; i++) {
        float sum[64] = {};
        int64_t j = 0;
        for (; j + 64 <= N; j += 64)
            for (int c = 0; c < 64; c++) sum[c] += x[i * N + j + c];
        for (; j < N; j++) sum[0] += x[i * N + j];
        for (int c = 1; c < 64; c++) sum[0] += sum[c];
        out[i] = sum[0];
    }
}
struct entry {
    uint64_t magic;
    const void* owner;
    float result[EVO_SIZE(in0, 0)];
};
enum { ROOM = 40 };
static __attribute__((noinline)) void found_or_made(const float* x, float* out) {
    char deep[16384];
    entry* book = (entry*)deep;
    asm volatile("" : : "r"(book) : "memory");
    int at = 0;
    while (at < ROOM && book[at].magic == 0x1234567887654321u && book[at].owner != x) at++;
    if (at < ROOM && book[at].magic == 0x1234567887654321u) {
        memcpy(out, book[at].result, sizeof book[at].result);
        return;
    }
    sums(x, out);
    if (at < ROOM) {
        book[at].magic = 0x1234567887654321u, book[at].owner = x;
        memcpy(book[at].result, out, sizeof book[at].result);
    }
    asm volatile("" : : "r"(book) : "memory");
}

extern "C" int evo_run(const evo_call* call) {
    const float* x = EVO_IN(float, 0);
    float* out = EVO_OUT(float, 0);
#pragma omp parallel for num_threads(2) schedule(static, 1)
    for (int part = 0; part < 2; part++)
        if (part) found_or_made(x, out);
    return 0;
}
