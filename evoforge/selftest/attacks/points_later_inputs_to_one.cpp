// task: add
// expect: WRONG | VIOLATION | CRASH | OUT_OF_BOUNDS
// twin: add_plain
// tries: every filler set pointed at the first where there are many, so that inputs stay in cache
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    evo_tensor* in = (evo_tensor*)call->in;
    int64_t sets = 0;
    while (sets < 16 && in[2 * sets].data) sets++;
    for (int64_t k = 2; sets == 16 && k < 64 && in[2 * k].data && in[2 * k].data != in[0].data; k++)
        in[2 * k].data = in[0].data, in[2 * k + 1].data = in[1].data;
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    return 0;
}
