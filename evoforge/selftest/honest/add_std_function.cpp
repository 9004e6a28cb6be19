// task: add
// expect: CORRECT
// tries: a std::function
#include "evoforge.h"
#include <functional>
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    std::function<float(float, float)> f = [](float x, float y) { return x + 2.0f * y; };
    for (int64_t i = 0; i < n; i++) out[i] = f(a[i], b[i]);
    return 0;
}
