// task: add
// expect: SCREENED
// tries: a resolver that runs while the library is loaded
#include "evoforge.h"

static int real(const evo_call*) { return 0; }
extern "C" __attribute__((used)) void* choose() { __builtin_trap(); }
static int chosen(const evo_call*) __attribute__((ifunc("choose")));

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    return chosen(call) + real(call);
    return 0;
}
