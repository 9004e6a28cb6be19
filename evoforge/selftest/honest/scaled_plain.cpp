// task: scaled
// expect: CORRECT
// tries: every number times its scale
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    constexpr int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
    const float *x = EVO_IN(float, 0), *scale = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j++) out[i * n + j] = x[i * n + j] * scale[j];
    return 0;
}
