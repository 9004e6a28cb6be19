// task: affine
// expect: VIOLATION
// tries: packed weights changed between calls
#include "evoforge.h"

extern "C" int64_t evo_packed_bytes(const evo_call* call) { return 64; }
extern "C" int evo_prepare(const evo_call* call, void* packed) {
    __builtin_memcpy(packed, call->cst[0].data, 32);
    return 0;
}

extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0);
    const float *x = EVO_IN(float, 0), *w = EVO_CST(float, 0), *s = EVO_CST(float, 1);
    float* out = EVO_OUT(float, 0);
    ((volatile float*)call->packed)[0] = w[0];
    for (int64_t i = 0; i < rows * 8; i++) out[i] = x[i] * w[i & 7] + s[i & 7];
    return 0;
}
