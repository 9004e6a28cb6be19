// task: add
// expect: SCREENED | VIOLATION | WRONG | CRASH
// tries: a temporary file without end
#include "evoforge.h"
#include <stdio.h>
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    FILE* file = tmpfile();
    for (long k = 0; file && k < 1l << 40; k++) fputc(0, file);
    return 0;
}
