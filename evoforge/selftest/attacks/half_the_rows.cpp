// task: add
// expect: WRONG
// tries: half of the work
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    const int64_t most = n / 2;
    for (int64_t i = 0; i < most; i++) out[i] = a[i] + 2.0f * b[i];
    return 0;
}
