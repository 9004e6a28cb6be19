// task: add
// expect: CORRECT
// tries: a stack frame of three megabytes
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    volatile float page[768 * 1024];
    for (int64_t i = 0; i < n; i++) page[i * 11] = 2.0f * b[i];
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + page[i * 11];
    return 0;
}
