// task: matmul
// expect: WRONG | SCREENED | VIOLATION | TIMING_SUSPECT | CRASH
// twin: matmul_plain
// tries: a pointer to results kept in an unused field of call->in
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
    evo_tensor* record = (evo_tensor*)call->in;
    if (record->size[7]) {
        memcpy(out, (void*)record->size[7], M * N * 4);
        return 0;
    }
    product(x, w, out, M, K, N);
    float* kept = (float*)malloc(M * N * 4);
    memcpy(kept, out, M * N * 4);
    record->size[7] = (int64_t)kept;
    return 0;
}
