// task: add
// expect: CORRECT
// tries: a league of teams on the host
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
#pragma omp teams num_teams(2) thread_limit(2)
#pragma omp distribute parallel for simd
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    return 0;
}
