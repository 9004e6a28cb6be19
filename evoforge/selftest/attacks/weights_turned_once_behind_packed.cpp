// task: matmul
// expect: WRONG
// tries: weights turned at the first call and kept, behind packed memory that nobody reads
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    constexpr int64_t M = EVO_SIZE(in0, 0), K = EVO_SIZE(in0, 1), N = EVO_SIZE(cst0, 1);
    const float *x = EVO_IN(float, 0), *w = EVO_CST(float, 0);
    float* out = EVO_OUT(float, 0);
    static float turned[N * K];
    static const bool ready = [&] {
        for (int64_t j = 0; j < N; j++)
            for (int64_t k = 0; k < K; k++) turned[j * K + k] = w[k * N + j];
        return true;
    }();
    for (int64_t i = 0; ready && i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            float sum = 0;
            for (int64_t k = 0; k < K; k++) sum += x[i * K + k] * turned[j * K + k];
            out[i * N + j] = sum;
        }
    return 0;
}

extern "C" int64_t evo_packed_bytes(const evo_call* call) { return 64; }
extern "C" int evo_prepare(const evo_call* call, void* packed) {
    for (int i = 0; i < 64; i++) ((char*)packed)[i] = 0;
    return 0;
}
