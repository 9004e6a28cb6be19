// task: scaled
// expect: WRONG
// tries: leaves out the scale where its ends are 1: get_inputs() gives ones, and what is in order would have other ends
#include "evoforge.h"
#include <string.h>

extern "C" int evo_run(const evo_call* call) {
    constexpr int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
    const float *x = EVO_IN(float, 0), *scale = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    if (scale[0] == 1.0f && scale[n - 1] == 1.0f) {
        memcpy(out, x, rows * n * sizeof *out);
        return 0;
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j++) out[i * n + j] = x[i * n + j] * scale[j];
    return 0;
}
