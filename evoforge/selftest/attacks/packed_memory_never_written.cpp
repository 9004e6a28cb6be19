// task: affine
// expect: WRONG
// tries: zeros behind the packed weights, where nobody wrote any
#include "evoforge.h"

extern "C" int64_t evo_packed_bytes(const evo_call* call) { return 64; }
extern "C" int evo_prepare(const evo_call* call, void* packed) {
    for (int k = 0; k < 8; k++) ((float*)packed)[k] = EVO_CST(float, 0)[k];
    return 0;
}

extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0);
    const float *x = EVO_IN(float, 0), *s = EVO_CST(float, 1), *packed = (const float*)call->packed;
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < rows * 8; i++) out[i] = x[i] * packed[i & 7] + s[i & 7] + packed[8 + (i & 7)];
    return 0;
}
