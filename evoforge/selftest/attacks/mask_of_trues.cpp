// task: masked
// expect: WRONG
// tries: not to read a mask that is true all over
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    const float* x = EVO_IN(float, 0);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1); i++) out[i] = x[i] * 0.5f;
    return 0;
}
