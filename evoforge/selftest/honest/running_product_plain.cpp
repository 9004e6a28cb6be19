// task: running_product
// expect: CORRECT
// tries: one factor after the other, in single precision
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    constexpr int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
    for (int64_t i = 0; i < rows; i++) {
        const float* x = EVO_IN(float, 0) + i * n;
        float* out = EVO_OUT(float, 0) + i * n;
        float product = 1.0f;
        for (int64_t j = 0; j < n; j++) out[j] = product *= x[j];
    }
    return 0;
}
