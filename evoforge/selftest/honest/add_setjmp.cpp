// task: add
// expect: CORRECT
// tries: a longjmp that stays inside the call
#include "evoforge.h"
#include <setjmp.h>
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    jmp_buf again;
    volatile int64_t from = 0;
    setjmp(again);
    const int64_t begin = from, end = begin + 4096 < n ? begin + 4096 : n;
    for (int64_t i = begin; i < end; i++) out[i] = a[i] + 2.0f * b[i];
    from = end;
    if (end < n) longjmp(again, 1);
    return 0;
}
