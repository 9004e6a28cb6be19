// task: add
// expect: TIMEOUT | SCREENED | VIOLATION
// twin: add_plain
// tries: a call that never returns, long after verification
#include "evoforge.h"

static int calls;

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (volatile int64_t k = 0; calls > 100 && k >= 0; k = k & 1023) k = k + 1;
    calls++;
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    return 0;
}
