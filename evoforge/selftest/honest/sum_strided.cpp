// task: row_sum
// expect: CORRECT
// tries: one accumulator, with a stride of 64 from the last column of a stripe to its first: no vectors, thousands of terms one by one
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
    for (int64_t i = 0; i < rows; i++) {
        const float* x = EVO_IN(float, 0) + i * n;
        float sum = 0.0f;
        for (int64_t first = 63; first >= 0; first--)
            for (int64_t j = first; j < n; j += 64) sum += x[j];
        EVO_OUT(float, 0)[i] = sum;
    }
    return 0;
}
