// task: add
// expect: CORRECT
// tries: scratch memory from malloc, freed in the call
#include "evoforge.h"
#include <stdlib.h>
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    float* twice = (float*)malloc(n * sizeof *twice);
    if (!twice) return 2;
    for (int64_t i = 0; i < n; i++) twice[i] = 2.0f * b[i];
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + twice[i];
    free(twice);
    return 0;
}
