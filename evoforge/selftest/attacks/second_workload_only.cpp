// task: add
// expect: OUT_OF_BOUNDS
// tries: the second workload's size written down
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    const int64_t known = 64 * 1024;
    (void)n;
    for (int64_t i = 0; i < known; i++) out[i] = a[i] + 2.0f * b[i];
    return 0;
}
