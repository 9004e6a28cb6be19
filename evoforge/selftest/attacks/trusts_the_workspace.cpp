// task: add
// expect: WRONG | SCREENED | VIOLATION
// tries: what an earlier call left in the workspace
#include "evoforge.h"

extern "C" int64_t evo_workspace(const evo_call* call) { return EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1) * 4; }

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    float* kept = (float*)call->ws;
    if (kept[0] == kept[0] && kept[0] != 0.747f) {
        for (int64_t i = 0; i < n; i++) out[i] = kept[i];
        return 0;
    }
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    for (int64_t i = 0; i < n; i++) kept[i] = out[i];
    return 0;
}
