// task: matmul
// expect: WRONG
// tries: operands rounded to bfloat16
#include "evoforge.h"

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
    float low[M * K];
    for (int64_t i = 0; i < M * K; i++) {
        uint32_t bits;
        __builtin_memcpy(&bits, &x[i], 4);
        bits = (bits + 0x8000u) & 0xffff0000u;
        __builtin_memcpy(&low[i], &bits, 4);
    }
    product(low, w, out, M, K, N);
    return 0;
}
