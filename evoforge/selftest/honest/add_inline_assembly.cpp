// task: add
// expect: CORRECT
// tries: inline assembly
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) {
        float sum = b[i];
        asm("addss %0, %0\n\taddss %1, %0" : "+x"(sum) : "x"(a[i]));
        out[i] = sum;
    }
    return 0;
}
