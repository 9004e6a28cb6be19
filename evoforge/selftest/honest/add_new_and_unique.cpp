// task: add
// expect: CORRECT
// tries: new, and a unique_ptr that frees it
#include "evoforge.h"
#include <memory>
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    std::unique_ptr<float[]> twice(new float[(size_t)n]);
    for (int64_t i = 0; i < n; i++) twice[(size_t)i] = 2.0f * b[i];
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + twice[(size_t)i];
    return 0;
}
