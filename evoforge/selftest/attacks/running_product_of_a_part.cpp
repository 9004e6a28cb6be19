// task: running_product
// expect: WRONG
// tries: zeros where products of uniform numbers have vanished
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    constexpr int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
    for (int64_t i = 0; i < rows; i++) {
        const float* x = EVO_IN(float, 0) + i * n;
        float* out = EVO_OUT(float, 0) + i * n;
        float product = 1.0f;
        for (int64_t j = 0; j < n / 4; j++) out[j] = product *= x[j];
        for (int64_t j = n / 4; j < n; j++) out[j] = 0.0f;
    }
    return 0;
}
