// task: matmul
// expect: WRONG | SCREENED | VIOLATION | TIMING_SUSPECT
// twin: matmul_plain
// tries: results kept by a few input elements
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

extern "C" int evo_run(const evo_call* call) {
    constexpr int64_t M = EVO_SIZE(in0, 0), K = EVO_SIZE(in0, 1), N = EVO_SIZE(cst0, 1);
    const float *x = EVO_IN(float, 0), *w = EVO_CST(float, 0);
    float* out = EVO_OUT(float, 0);
    static float kept[64][M * N];
    static float owner[64][4];
    static int used;
    const float now[4] = {x[0], x[M * K / 3], x[M * K / 2], x[M * K - 1]};
    for (int slot = 0; slot < used; slot++)
        if (memcmp(owner[slot], now, sizeof now) == 0) {
            memcpy(out, kept[slot], sizeof kept[slot]);
            return 0;
        }
    product(x, w, out, M, K, N);
    if (used < 64) memcpy(owner[used], now, sizeof now), memcpy(kept[used++], out, sizeof kept[0]);
    return 0;
}
