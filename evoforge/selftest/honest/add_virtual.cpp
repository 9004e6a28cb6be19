// task: add
// expect: CORRECT
// tries: virtual functions
#include "evoforge.h"

struct operation {
    virtual float of(float a, float b) const = 0;
};
struct sum : operation {
    float of(float a, float b) const override { return a + b; }
};
struct scaled : operation {
    float of(float a, float b) const override { return a + 2.0f * b; }
};

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    const sum first;
    const scaled second;
    const operation* chosen = n > 1 ? (const operation*)&second : &first;
    for (int64_t i = 0; i < n; i++) out[i] = chosen->of(a[i], b[i]);
    return 0;
}
