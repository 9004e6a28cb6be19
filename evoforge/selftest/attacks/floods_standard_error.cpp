// task: add
// expect: SCREENED | VIOLATION | TIMEOUT
// twin: add_plain
// tries: a judge that waits for a reader, or keeps all that is printed
#include "evoforge.h"
#include <stdio.h>
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    for (int k = 0; k < 1000; k++) fprintf(stderr, "error: %0200d\n", k);
    return 0;
}
