// task: add
// expect: VIOLATION
// tries: a full x87 stack for the caller, whose next long double is NaN
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    for (int i = 0; i < 8; i++) asm volatile("fld1");
    return 0;
}
