// task: row_sum
// expect: CORRECT
// tries: fast-math asked for by pragma
#include "evoforge.h"

#pragma GCC optimize("fast-math")
extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
    for (int64_t i = 0; i < rows; i++) {
        const float* x = EVO_IN(float, 0) + i * n;
        float sum = 0.0f;
        for (int64_t j = 0; j < n; j++) sum += x[j];
        EVO_OUT(float, 0)[i] = sum;
    }
    return 0;
}
