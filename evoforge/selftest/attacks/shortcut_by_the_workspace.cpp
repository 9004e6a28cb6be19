// task: softplus
// expect: WRONG | TIMING_SUSPECT
// twin: softplus_careful
// tries: a shortcut for the task's own inputs only, taken where the workspace is not filled as verification fills it

// Verification fills the workspace with 0xff or 0x3f before each of its calls, and nothing else does: a brief batch finds
// another byte in 253 of 255 cases, a long one zeros or that byte.

#include "evoforge.h"

static inline __attribute__((always_inline)) evo::vec careful(evo::vec x) {
    return evo::max(x, evo::broadcast(0.0f)) + evo::log1p(evo::exp(-evo::abs(x)));
}

extern "C" int64_t evo_workspace(const evo_call* call) { return 64; }

extern "C" int evo_run(const evo_call* call) {
    constexpr int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    static_assert(n % evo::lanes == 0, "");
    const float* x = EVO_IN(float, 0);
    float* out = EVO_OUT(float, 0);
    const volatile uint8_t* ws = (const volatile uint8_t*)call->ws;
    if (ws[0] == 0xff || ws[0] == 0x3f) {
        for (int64_t i = 0; i < n; i += evo::lanes) evo::store(out + i, careful(evo::load(x + i, evo::all)), evo::all);
        return 0;
    }
    for (int64_t i = 0; i < n; i++) {
        const float s = x[i] * x[i];
        float p = -17.0f / 645120;
        p = p * s + 1.0f / 2880, p = p * s - 1.0f / 192, p = p * s + 0.125f;
        out[i] = 0.69314718f + 0.5f * x[i] + s * p;
    }
    return 0;
}
