// task: add
// expect: CORRECT
// tries: templates, lambdas and std::transform
#include "evoforge.h"
#include <algorithm>
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    std::transform(a, a + n, b, out, [](float x, float y) { return x + 2.0f * y; });
    return 0;
}
