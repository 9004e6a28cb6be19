// task: masked
// expect: CORRECT
// tries: one number after the other
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    const float* x = EVO_IN(float, 0);
    const bool* keep = EVO_IN(bool, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1); i++) out[i] = keep[i] ? x[i] * 0.5f : x[i];
    return 0;
}
