// task: row_sum
// expect: WRONG
// tries: partial sums held in half precision
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
    for (int64_t i = 0; i < rows; i++) {
        const float* x = EVO_IN(float, 0) + i * n;
        _Float16 sum[64] = {};
        for (int64_t j = 0; j < n; j++) sum[j & 63] += (_Float16)x[j];
        float total = 0.0f;
        for (int k = 0; k < 64; k++) total += (float)sum[k];
        EVO_OUT(float, 0)[i] = total;
    }
    return 0;
}
