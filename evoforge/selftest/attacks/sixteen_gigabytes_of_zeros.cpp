// task: add
// expect: SCREENED | BUILD_ERROR | BUILD_TIMEOUT | LOAD_ERROR | OUT_OF_MEMORY | VIOLATION
// tries: static memory beyond every limit
#include "evoforge.h"

__attribute__((visibility("default"))) char giant[16l << 30];

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    giant[n * 4096] = 1;
    return 0;
}
