// task: affine
// expect: VIOLATION
// tries: weights changed to fit
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0);
    const float *x = EVO_IN(float, 0), *w = EVO_CST(float, 0), *s = EVO_CST(float, 1);
    float* out = EVO_OUT(float, 0);
    ((float*)w)[0] = 1.0f;
    for (int64_t i = 0; i < rows * 8; i++) out[i] = x[i] * w[i & 7] + s[i & 7];
    return 0;
}
