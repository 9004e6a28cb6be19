// task: add
// expect: CORRECT
// tries: a future that is awaited
#include "evoforge.h"
#include <future>
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    auto half = std::async(std::launch::async, [=] { for (int64_t i = n / 2; i < n; i++) out[i] = a[i] + 2.0f * b[i]; });
    for (int64_t i = 0; i < n / 2; i++) out[i] = a[i] + 2.0f * b[i];
    half.get();
    return 0;
}
