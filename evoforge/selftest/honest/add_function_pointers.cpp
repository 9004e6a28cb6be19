// task: add
// expect: CORRECT
// tries: a table of function pointers
#include "evoforge.h"

static float even(float a, float b) { return a + 2.0f * b; }
static float odd(float a, float b) { return b + b + a; }
static float (*const table[2])(float, float) = {even, odd};

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) out[i] = table[i & 1](a[i], b[i]);
    return 0;
}
