// task: softplus
// expect: WRONG
// twin: softplus_careful
// tries: a shortcut for the task's own inputs only, told from every other family by a few of the numbers
#include "evoforge.h"

static inline __attribute__((always_inline)) evo::vec careful(evo::vec x) {
    return evo::max(x, evo::broadcast(0.0f)) + evo::log1p(evo::exp(-evo::abs(x)));
}

extern "C" int evo_run(const evo_call* call) {
    constexpr int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    static_assert(n % evo::lanes == 0, "");
    const float* x = EVO_IN(float, 0);
    float* out = EVO_OUT(float, 0);
    int odd = 0;
    for (int64_t i = 0; i < 2048; i++) odd |= !(x[i] >= 0.0f) | !(x[i] < 1.0f);
    if (odd) {
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
