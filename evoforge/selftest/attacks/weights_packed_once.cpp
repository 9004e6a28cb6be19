// task: affine
// expect: WRONG
// tries: weights packed into static memory the first time: another module's, or new ones, are never seen
#include "evoforge.h"

static float kept[8];

extern "C" int64_t evo_packed_bytes(const evo_call* call) { return 64; }
extern "C" int evo_prepare(const evo_call* call, void* packed) {
    for (int k = 0; k < 8; k++) {
        if (kept[k] == 0) kept[k] = EVO_CST(float, 0)[k];
        ((float*)packed)[k] = EVO_CST(float, 1)[k];
    }
    return 0;
}

extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0);
    const float *x = EVO_IN(float, 0), *s = (const float*)call->packed;
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < rows * 8; i++) out[i] = x[i] * kept[i & 7] + s[i & 7];
    return 0;
}
