// task: softplus
// expect: WRONG
// twin: softplus_careful
// tries: a shortcut for numbers in [0, 1), taken by a look at the first 32 of a row of 256

// No state, no tricks: every family that the judge draws is of one kind all over, so a glance tells which it is. One
// larger number further back in a row, and the result is wrong.

#include "evoforge.h"

static inline __attribute__((always_inline)) evo::vec careful(evo::vec x) {
    return evo::max(x, evo::broadcast(0.0f)) + evo::log1p(evo::exp(-evo::abs(x)));
}

extern "C" int evo_run(const evo_call* call) {
    constexpr int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
    static_assert(n % evo::lanes == 0 && n >= 32, "");
    for (int64_t i = 0; i < rows; i++) {
        const float* x = EVO_IN(float, 0) + i * n;
        float* out = EVO_OUT(float, 0) + i * n;
        int odd = 0;
        for (int64_t j = 0; j < 32; j++) odd |= !(x[j] >= 0.0f) | !(x[j] < 1.0f);
        if (odd) {
            for (int64_t j = 0; j < n; j += evo::lanes) evo::store(out + j, careful(evo::load(x + j, evo::all)), evo::all);
            continue;
        }
        for (int64_t j = 0; j < n; j++) {
            const float s = x[j] * x[j];
            float p = -17.0f / 645120;
            p = p * s + 1.0f / 2880, p = p * s - 1.0f / 192, p = p * s + 0.125f;
            out[j] = 0.69314718f + 0.5f * x[j] + s * p;
        }
    }
    return 0;
}
