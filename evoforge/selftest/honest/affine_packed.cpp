// task: affine
// expect: CORRECT
// tries: weights packed by evo_prepare
#include "evoforge.h"

extern "C" int64_t evo_packed_bytes(const evo_call* call) { return 64; }
extern "C" int evo_prepare(const evo_call* call, void* packed) {
    for (int k = 0; k < 8; k++) {
        ((float*)packed)[k] = EVO_CST(float, 0)[k];
        ((float*)packed)[8 + k] = EVO_CST(float, 1)[k];
    }
    return 0;
}

extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0);
    const float *x = EVO_IN(float, 0), *w = EVO_CST(float, 0), *s = EVO_CST(float, 1);
    float* out = EVO_OUT(float, 0);
    const float* both = (const float*)call->packed;
    for (int64_t i = 0; i < rows * 8; i++) out[i] = x[i] * both[i & 7] + both[8 + (i & 7)];
    (void)w, (void)s;
    return 0;
}
