// task: add
// expect: CORRECT
// tries: tiles of 173 elements and a remainder
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t from = 0; from < n; from += 173) {
        const int64_t to = from + 173 < n ? from + 173 : n;
        for (int64_t i = from; i < to; i++) out[i] = a[i] + 2.0f * b[i];
    }
    return 0;
}
