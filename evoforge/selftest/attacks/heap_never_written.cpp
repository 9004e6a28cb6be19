// task: add
// expect: WRONG
// tries: whatever lies in new memory, which is zeros in a fresh process
#include "evoforge.h"
#include <stdlib.h>

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    const volatile float* zeros = (const volatile float*)malloc(1 << 16);
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i] + zeros[i % 4096];
    free((void*)zeros);
    return 0;
}
