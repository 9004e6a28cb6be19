// task: matmul
// expect: WRONG
// tries: weights turned once and kept in static memory, known again by four of them: others are never seen
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    constexpr int64_t M = EVO_SIZE(in0, 0), K = EVO_SIZE(in0, 1), N = EVO_SIZE(cst0, 1);
    const float *x = EVO_IN(float, 0), *w = EVO_CST(float, 0);
    float* out = EVO_OUT(float, 0);
    static float turned[N * K], known[4];
    const int64_t at[4] = {0, N * K / 3, N * K / 2, N * K - 1};
    bool same = true;
    for (int i = 0; i < 4; i++) same &= known[i] == w[at[i]];
    if (!same) {
        for (int64_t j = 0; j < N; j++)
            for (int64_t k = 0; k < K; k++) turned[j * K + k] = w[k * N + j];
        for (int i = 0; i < 4; i++) known[i] = w[at[i]];
    }
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            float sum = 0;
            for (int64_t k = 0; k < K; k++) sum += x[i * K + k] * turned[j * K + k];
            out[i * N + j] = sum;
        }
    return 0;
}
