// task: add
// expect: SCREENED
// tries: a pointer placed in .init_array
#include "evoforge.h"

static void early() { __builtin_trap(); }
__attribute__((section(".init_array"), used)) static void (*const table)() = early;

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    return 0;
}
