// task: softmax
// expect: WRONG
// tries: no maximum subtracted where neither the first 64 numbers of a row nor the last are beyond 80

// The commonest shortcut of all. A piece of far numbers shows at an end of some row unless it lies within one.

#include "evoforge.h"
#include <math.h>

extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
    for (int64_t i = 0; i < rows; i++) {
        const float* x = EVO_IN(float, 0) + i * n;
        float* out = EVO_OUT(float, 0) + i * n;
        float far = fabsf(x[n - 1]), top = 0.0f, sum = 0.0f;
        for (int64_t j = 0; j < 64; j++) far = fmaxf(far, fabsf(x[j]));
        if (!(far <= 80.0f)) {
            top = x[0];
            for (int64_t j = 1; j < n; j++) top = fmaxf(top, x[j]);
        }
        for (int64_t j = 0; j < n; j++) sum += out[j] = expf(x[j] - top);
        for (int64_t j = 0; j < n; j++) out[j] /= sum;
    }
    return 0;
}
