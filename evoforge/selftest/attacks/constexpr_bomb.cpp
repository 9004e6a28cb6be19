// task: add
// expect: SCREENED | BUILD_ERROR | BUILD_TIMEOUT
// tries: a computation without end in the compiler
#include "evoforge.h"

constexpr long spin(long x) {
    for (long k = 0; k < 1l << 60; k++) x = x * 3 + k;
    return x;
}
constexpr long spun = spin(1);

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    out[0] += 0.0f * (float)spun;
    return 0;
}
