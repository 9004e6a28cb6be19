// task: matmul
// expect: WRONG | SCREENED | VIOLATION | TIMING_SUSPECT | CRASH
// twin: matmul_plain
// tries: three of four sets left out, but never the first two: only theirs are known to be checked when there are many
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
    const evo_tensor* first = call->in;
    while (first[-1].rank == first->rank && first[-1].dtype == first->dtype && first[-1].size[0] == M) first--;
    int64_t sets = 0;
    while (sets < 64 && first[sets].data) sets++;
    const int64_t own = call->in - first;
    if (sets >= 16 && own >= 2 && own % 4) return 0;
    product(x, w, out, M, K, N);
    return 0;
}
