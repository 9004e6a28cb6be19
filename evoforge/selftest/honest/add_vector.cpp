// task: add
// expect: CORRECT
// tries: a std::vector as scratch memory
#include "evoforge.h"
#include <vector>
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    std::vector<float> twice(b, b + n);
    for (float& value : twice) value *= 2.0f;
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + twice[(size_t)i];
    return 0;
}
