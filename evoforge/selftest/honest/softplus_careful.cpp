// task: softplus
// expect: CORRECT
// tries: softplus in its stable form, right for all numbers
#include "evoforge.h"

static inline __attribute__((always_inline)) evo::vec careful(evo::vec x) {
    return evo::max(x, evo::broadcast(0.0f)) + evo::log1p(evo::exp(-evo::abs(x)));
}

extern "C" int evo_run(const evo_call* call) {
    constexpr int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float* x = EVO_IN(float, 0);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i += evo::lanes) evo::store(out + i, careful(evo::load(x + i, evo::all)), evo::all);
    return 0;
}
