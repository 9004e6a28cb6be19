// task: add
// expect: WRONG
// tries: right for more calls than a process is looked at, zeros after them
#include "evoforge.h"

static int calls;

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    const bool tired = ++calls > 190;
    for (int64_t i = 0; i < n; i++) out[i] = tired ? 0 : a[i] + 2.0f * b[i];
    return 0;
}
