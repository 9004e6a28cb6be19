// task: matmul
// expect: CORRECT
// tries: outer products added up in the output
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    constexpr int64_t M = EVO_SIZE(in0, 0), K = EVO_SIZE(in0, 1), N = EVO_SIZE(cst0, 1);
    const float *x = EVO_IN(float, 0), *w = EVO_CST(float, 0);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < M * N; i++) out[i] = 0.0f;
    for (int64_t k = 0; k < K; k++)
        for (int64_t i = 0; i < M; i++)
            for (int64_t j = 0; j < N; j++) out[i * N + j] += x[i * K + k] * w[k * N + j];
    return 0;
}
