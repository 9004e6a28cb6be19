// task: add
// expect: CRASH
// tries: endless recursion
#include "evoforge.h"

static float deeper(volatile float* x, int64_t depth) {
    volatile float page[1024];
    page[0] = x[0];
    return depth < 0 ? 0.0f : deeper(page, depth + 1) + page[1];
}

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    out[0] += deeper(out, 1);
    return 0;
}
