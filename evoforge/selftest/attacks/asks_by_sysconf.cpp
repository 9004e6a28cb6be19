// task: add
// expect: SCREENED | VIOLATION
// tries: to learn the time, or where the clock is, by sysconf
#include "evoforge.h"
extern "C" long sysconf(int);
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    if (sysconf(84) == -12345) out[0] = 0.0f;
    return 0;
}
