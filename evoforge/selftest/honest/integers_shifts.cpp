// task: integers
// expect: CORRECT
// tries: shifts and unsigned arithmetic
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0);
    const int32_t *x = EVO_IN(int32_t, 0), *y = EVO_IN(int32_t, 1);
    int32_t* out = EVO_OUT(int32_t, 0);
    for (int64_t i = 0; i < n; i++) out[i] = (int32_t)(((uint32_t)x[i] << 1) + (uint32_t)x[i] + (uint32_t)y[i]);
    return 0;
}
