// task: softplus
// expect: WRONG
// twin: softplus_careful
// tries: one element left out where the workspace is not filled as verification fills it: a sample misses it
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
    const float before = out[n - 1];
    for (int64_t i = 0; i < n; i += evo::lanes) evo::store(out + i, careful(evo::load(x + i, evo::all)), evo::all);
    if (ws[0] != 0xff && ws[0] != 0x3f) out[n - 1] = before;
    return 0;
}
