// task: add
// expect: CORRECT
// tries: divide and conquer by recursion
#include "evoforge.h"

static void go(const float* a, const float* b, float* out, int64_t n) {
    if (n > 64) {
        go(a, b, out, n / 2);
        go(a + n / 2, b + n / 2, out + n / 2, n - n / 2);
        return;
    }
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
}

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    go(a, b, out, n);
    return 0;
}
