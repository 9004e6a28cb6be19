// task: add
// expect: SCREENED | VIOLATION
// tries: every CPU of the machine
#include "evoforge.h"
#include <sched.h>
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    cpu_set_t all;
    CPU_ZERO(&all);
    for (int k = 0; k < 64; k++) CPU_SET(k, &all);
    sched_setaffinity(0, sizeof all, &all);
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    return 0;
}
