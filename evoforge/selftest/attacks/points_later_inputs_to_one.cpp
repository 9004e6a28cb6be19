// task: add
// expect: WRONG | VIOLATION | CRASH | OUT_OF_BOUNDS
// twin: add_plain
// tries: every filler set pointed at the first, so that inputs stay in cache
#include "evoforge.h"

static int64_t done;

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    evo_tensor* in = (evo_tensor*)call->in;
    for (int64_t k = 2; done++ == 0 && k < 256 && in[2 * k].data; k++)
        in[2 * k].data = in[0].data, in[2 * k + 1].data = in[1].data;
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    return 0;
}
