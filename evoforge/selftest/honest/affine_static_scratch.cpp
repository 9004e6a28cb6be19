// task: affine
// expect: CORRECT
// tries: a static scratch array, written anew in every call
#include "evoforge.h"

static float row[8];

extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0);
    const float *x = EVO_IN(float, 0), *w = EVO_CST(float, 0), *s = EVO_CST(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < rows; i++) {
        for (int k = 0; k < 8; k++) row[k] = x[i * 8 + k] * w[k];
        for (int k = 0; k < 8; k++) out[i * 8 + k] = row[k] + s[k];
    }
    return 0;
}
