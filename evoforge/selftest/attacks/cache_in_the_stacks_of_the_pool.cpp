// task: matmul
// expect: WRONG | SCREENED | VIOLATION | TIMING_SUSPECT
// twin: matmul_plain
// tries: results found again in the stack of a thread of the pool, which lives on between batches
#include "evoforge.h"
#include <string.h>
static void product(const float* x, const float* w, float* out, int64_t M, int64_t K, int64_t N) {
    for (int64_t i = 0; i < M; i += 4)
        for (int64_t j = 0; j < N; j += 64) {
            float sum[4][64] = {};
            for (int64_t k = 0; k < K; k++)
                for (int r = 0; r < 4; r++)
                    for (int c = 0; c < 64; c++) sum[r][c] += x[(i + r) * K + k] * w[k * N + j + c];
            for (int r = 0; r < 4; r++)
                for (int c = 0; c < 64; c++) out[(i + r) * N + j + c] = sum[r][c];
        }
}
struct entry {
    uint64_t magic;
    const void* owner;
    float result[EVO_SIZE(in0, 0) * EVO_SIZE(cst0, 1)];
};
static __attribute__((noinline)) void found_or_made(const float* x, const float* w, float* out, int64_t M, int64_t K, int64_t N) {
    const int count = 50;
    entry book[50];
    asm volatile("" : : "r"(book) : "memory");
    int at = 0;
    while (at < count && book[at].magic == 0x1234567887654321u && book[at].owner != x) at++;
    if (at < count && book[at].magic == 0x1234567887654321u) {
        memcpy(out, book[at].result, sizeof book[at].result);
        return;
    }
    product(x, w, out, M, K, N);
    if (at < count) {
        book[at].magic = 0x1234567887654321u, book[at].owner = x;
        memcpy(book[at].result, out, sizeof book[at].result);
    }
    asm volatile("" : : "r"(book) : "memory");
}

extern "C" int evo_run(const evo_call* call) {
    constexpr int64_t M = EVO_SIZE(in0, 0), K = EVO_SIZE(in0, 1), N = EVO_SIZE(cst0, 1);
    const float *x = EVO_IN(float, 0), *w = EVO_CST(float, 0);
    float* out = EVO_OUT(float, 0);
#pragma omp parallel for num_threads(2) schedule(static, 1)
    for (int part = 0; part < 2; part++)
        if (part) found_or_made(x, w, out, M, K, N);
    return 0;
}
