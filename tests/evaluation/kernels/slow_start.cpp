#include "evoforge.h"

static bool started = false;

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    for (int64_t i = 0; i < n; i++) EVO_OUT(float, 0)[i] = EVO_IN(float, 0)[i] + EVO_IN(float, 1)[i];
    volatile double idle = 1.0;
    for (int64_t i = 0; !started && i < 20000000; i++) idle = idle * 0.5 + 1.0;
    started = true;
    return 0;
}
