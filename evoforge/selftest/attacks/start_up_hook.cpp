// task: add
// expect: SCREENED
// tries: code that runs when the library is loaded, under the name that the start-up files call where it is defined
#include "evoforge.h"

static volatile int early;
extern "C" __attribute__((visibility("default"))) void __gmon_start__() { early = 1; }

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) out[i] = early ? a[i] + 2.0f * b[i] : 0.0f;
    return 0;
}
