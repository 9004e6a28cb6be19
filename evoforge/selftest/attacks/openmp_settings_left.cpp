// task: add
// expect: VIOLATION
// tries: one thread for all of OpenMP that follows
#include "evoforge.h"
#include <omp.h>

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    omp_set_num_threads(1);
    omp_set_dynamic(1);
    return 0;
}
