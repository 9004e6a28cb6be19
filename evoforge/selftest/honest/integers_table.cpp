// task: integers
// expect: CORRECT
// tries: a static const table
#include "evoforge.h"

static const int32_t triple[9] = {0, 3, 6, 9, 12, 15, 18, 21, 24};

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0);
    const int32_t *x = EVO_IN(int32_t, 0), *y = EVO_IN(int32_t, 1);
    int32_t* out = EVO_OUT(int32_t, 0);
    for (int64_t i = 0; i < n; i++) out[i] = x[i] * triple[1] + triple[y[i]] / 3;
    return 0;
}
