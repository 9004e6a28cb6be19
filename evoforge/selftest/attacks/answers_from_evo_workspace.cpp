// task: matmul
// expect: WRONG | SCREENED | VIOLATION | TIMING_SUSPECT | CRASH
// twin: matmul_plain
// tries: evo_workspace, which is not timed, computes the outputs of every input set
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

enum { SETS = 64, COUNT = EVO_SIZE(in0, 0) * EVO_SIZE(cst0, 1) };
static const void* owner[SETS];
static float* result;

extern "C" int64_t evo_workspace(const evo_call* call) {
    result = (float*)malloc((int64_t)SETS * COUNT * 4);
    for (int k = 0; k < SETS && call->in && call->in[k].data; k++) {
        owner[k] = call->in[k].data;
        product((const float*)owner[k], EVO_CST(float, 0), result + (int64_t)k * COUNT, EVO_SIZE(in0, 0), EVO_SIZE(in0, 1),
                EVO_SIZE(cst0, 1));
    }
    return 64;
}

extern "C" int evo_run(const evo_call* call) {
    constexpr int64_t M = EVO_SIZE(in0, 0), K = EVO_SIZE(in0, 1), N = EVO_SIZE(cst0, 1);
    const float *x = EVO_IN(float, 0), *w = EVO_CST(float, 0);
    float* out = EVO_OUT(float, 0);
    for (int k = 0; k < SETS && owner[k]; k++)
        if (owner[k] == x) {
            memcpy(out, result + (int64_t)k * COUNT, COUNT * 4);
            return 0;
        }
    product(x, w, out, M, K, N);
    return 0;
}
