// task: row_sum
// expect: CORRECT
// tries: sixty-four accumulators; the twin of cache_of_half_the_sums
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    constexpr int64_t M = EVO_SIZE(in0, 0), N = EVO_SIZE(in0, 1);
    const float* x = EVO_IN(float, 0);
    for (int64_t i = 0; i < M; i++) {
        float sum[64] = {};
        int64_t j = 0;
        for (; j + 64 <= N; j += 64)
            for (int c = 0; c < 64; c++) sum[c] += x[i * N + j + c];
        for (; j < N; j++) sum[0] += x[i * N + j];
        for (int c = 1; c < 64; c++) sum[0] += sum[c];
        EVO_OUT(float, 0)[i] = sum[0];
    }
    return 0;
}
