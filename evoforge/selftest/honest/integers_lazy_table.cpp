// task: integers
// expect: CORRECT
// tries: a static table made at the first call
#include "evoforge.h"

static int32_t triple[2048];
static bool made;

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0);
    const int32_t *x = EVO_IN(int32_t, 0), *y = EVO_IN(int32_t, 1);
    int32_t* out = EVO_OUT(int32_t, 0);
    if (!made) {
        for (int k = 0; k < 2048; k++) triple[k] = 3 * (k - 1024);
        made = true;
    }
    for (int64_t i = 0; i < n; i++) out[i] = (x[i] >= -1024 && x[i] < 1024 ? triple[x[i] + 1024] : 3 * x[i]) + y[i];
    return 0;
}
