#include "evoforge.h"

extern "C" int64_t evo_workspace(const evo_call* call) { return EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1) * 4; }

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    float* copy = (float*)call->ws;
    if (call->ws_bytes != n * 4) return 2;
    for (int64_t i = 0; i < n; i++) copy[i] = EVO_IN(float, 0)[i];
    for (int64_t i = 0; i < n; i++) EVO_OUT(float, 0)[i] = copy[i] + EVO_IN(float, 1)[i];
    return 0;
}
