// task: row_sum
// expect: CORRECT
// tries: a pairwise sum by recursion
#include "evoforge.h"

static float pairwise(const float* x, int64_t n) {
    if (n > 16) return pairwise(x, n / 2) + pairwise(x + n / 2, n - n / 2);
    float sum = 0.0f;
    for (int64_t j = 0; j < n; j++) sum += x[j];
    return sum;
}

extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
    for (int64_t i = 0; i < rows; i++) {
        const float* x = EVO_IN(float, 0) + i * n;
        EVO_OUT(float, 0)[i] = pairwise(x, n);
    }
    return 0;
}
