// task: add
// expect: SCREENED | VIOLATION
// twin: add_plain
// tries: a clock_gettime of its own for everybody
#include "evoforge.h"

extern "C" __attribute__((visibility("default"))) int clock_gettime(int, void*) { return 0; }
extern "C" __attribute__((visibility("default"))) long write(int, const void*, unsigned long bytes) { return (long)bytes; }

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    return 0;
}
