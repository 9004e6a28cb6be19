// task: matmul
// expect: CORRECT
// tries: the weight transposed once by evo_prepare
#include "evoforge.h"

extern "C" int64_t evo_packed_bytes(const evo_call* call) { return EVO_SIZE(cst0, 0) * EVO_SIZE(cst0, 1) * 4; }
extern "C" int evo_prepare(const evo_call* call, void* packed) {
    const int64_t K = EVO_SIZE(cst0, 0), N = EVO_SIZE(cst0, 1);
    for (int64_t k = 0; k < K; k++)
        for (int64_t j = 0; j < N; j++) ((float*)packed)[j * K + k] = EVO_CST(float, 0)[k * N + j];
    return 0;
}

extern "C" int evo_run(const evo_call* call) {
    constexpr int64_t M = EVO_SIZE(in0, 0), K = EVO_SIZE(in0, 1), N = EVO_SIZE(cst0, 1);
    const float *x = EVO_IN(float, 0), *w = EVO_CST(float, 0);
    float* out = EVO_OUT(float, 0);
    const float* turned = (const float*)call->packed;
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            float sum = 0.0f;
            for (int64_t k = 0; k < K; k++) sum += x[i * K + k] * turned[j * K + k];
            out[i * N + j] = sum;
        }
    (void)w;
    return 0;
}
