// task: row_sum
// expect: CORRECT
// tries: an OpenMP reduction within each row
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
    for (int64_t i = 0; i < rows; i++) {
        const float* x = EVO_IN(float, 0) + i * n;
        float sum = 0.0f;
#pragma omp parallel for num_threads(call->threads) reduction(+ : sum)
        for (int64_t j = 0; j < n; j++) sum += x[j];
        EVO_OUT(float, 0)[i] = sum;
    }
    return 0;
}
