// task: integers
// expect: WRONG
// tries: exact almost everywhere
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0);
    const int32_t *x = EVO_IN(int32_t, 0), *y = EVO_IN(int32_t, 1);
    int32_t* out = EVO_OUT(int32_t, 0);
    for (int64_t i = 0; i < n; i++) out[i] = 3 * x[i] + y[i] + (i % 1000 == 999);
    return 0;
}
