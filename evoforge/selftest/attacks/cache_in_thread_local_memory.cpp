// task: matmul
// expect: WRONG | SCREENED | VIOLATION | TIMING_SUSPECT
// twin: matmul_plain
// tries: results kept behind a thread_local pointer
#include "evoforge.h"
#include <string.h>
#include <stdlib.h>
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

extern "C" int evo_run(const evo_call* call) {
    constexpr int64_t M = EVO_SIZE(in0, 0), K = EVO_SIZE(in0, 1), N = EVO_SIZE(cst0, 1);
    const float *x = EVO_IN(float, 0), *w = EVO_CST(float, 0);
    float* out = EVO_OUT(float, 0);
    static thread_local float* kept;
    static thread_local const void* owner[64];
    if (!kept) kept = (float*)malloc(64 * M * N * 4);
    int slot = 0;
    while (slot < 64 && owner[slot] && owner[slot] != x) slot++;
    if (slot < 64 && owner[slot] == x) {
        memcpy(out, kept + slot * M * N, M * N * 4);
        return 0;
    }
    product(x, w, out, M, K, N);
    if (slot < 64) owner[slot] = x, memcpy(kept + slot * M * N, out, M * N * 4);
    return 0;
}
