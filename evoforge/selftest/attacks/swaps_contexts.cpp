// task: add
// expect: SCREENED | VIOLATION | WRONG | CRASH
// twin: add_plain
// tries: to go on on another stack after it returned
#include "evoforge.h"
#include <ucontext.h>
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    ucontext_t now;
    getcontext(&now);
    out[0] += 0.0f * (float)now.uc_stack.ss_size;
    return 0;
}
