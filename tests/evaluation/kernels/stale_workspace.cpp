#include "evoforge.h"

extern "C" int64_t evo_workspace(const evo_call*) { return 64; }

// Takes what lies in the workspace for zero.
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    for (int64_t i = 0; i < n; i++) EVO_OUT(float, 0)[i] = EVO_IN(float, 0)[i] + EVO_IN(float, 1)[i] + ((float*)call->ws)[0];
    return 0;
}
