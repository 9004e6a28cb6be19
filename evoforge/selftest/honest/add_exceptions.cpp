// task: add
// expect: CORRECT
// tries: an exception caught inside the call
#include "evoforge.h"
#include <stdexcept>
static float checked(float x, int64_t i) {
    if (i % 1009 == 0) throw std::runtime_error("now and then");
    return 2.0f * x;
}

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) {
        try {
            out[i] = a[i] + checked(b[i], i);
        } catch (const std::exception&) {
            out[i] = a[i] + 2.0f * b[i];
        }
    }
    return 0;
}
