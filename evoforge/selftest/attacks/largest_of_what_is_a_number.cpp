// task: clamped
// expect: WRONG
// tries: comparisons that drop NaN, where the task declares that it must come out again
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
    for (int64_t i = 0; i < rows; i++) {
        const float* x = EVO_IN(float, 0) + i * n;
        float top = x[0];
        for (int64_t j = 0; j < n; j++) {
            EVO_OUT(float, 0)[i * n + j] = x[j] > 0.0f ? x[j] : 0.0f;
            if (x[j] > top) top = x[j];
        }
        EVO_OUT(float, 1)[i] = top;
    }
    return 0;
}
