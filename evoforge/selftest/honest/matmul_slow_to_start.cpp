// task: matmul
// expect: CORRECT
// tries: a first call that takes a hundred times as long as the others
#include "evoforge.h"
#include <math.h>

enum { TABLE = 4 << 20 };
static float ones[TABLE];  // filled in the first call of a process

static void product(const float* x, const float* w, float* out, int64_t M, int64_t K, int64_t N) {
    for (int64_t i = 0; i < M; i += 4)
        for (int64_t j = 0; j < N; j += 64) {
            float sum[4][64] = {};
            for (int64_t k = 0; k < K; k++)
                for (int r = 0; r < 4; r++)
                    for (int c = 0; c < 64; c++) sum[r][c] += x[(i + r) * K + k] * w[k * N + j + c];
            for (int r = 0; r < 4; r++)
                for (int c = 0; c < 64; c++) out[(i + r) * N + j + c] = sum[r][c] * ones[(i + r) * N + j + c];
        }
}

extern "C" int evo_run(const evo_call* call) {
    constexpr int64_t M = EVO_SIZE(in0, 0), K = EVO_SIZE(in0, 1), N = EVO_SIZE(cst0, 1);
    const float *x = EVO_IN(float, 0), *w = EVO_CST(float, 0);
    float* out = EVO_OUT(float, 0);
    if (ones[TABLE - 1] == 0.0f)
        for (int64_t i = 0; i < TABLE; i++) ones[i] = (float)(1.0 + 0.0 * sin((double)i));
    product(x, w, out, M, K, N);
    return 0;
}
