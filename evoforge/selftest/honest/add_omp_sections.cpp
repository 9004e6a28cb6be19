// task: add
// expect: CORRECT
// tries: OpenMP sections
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
#pragma omp parallel sections num_threads(call->threads)
    {
#pragma omp section
        for (int64_t i = 0; i < n / 3; i++) out[i] = a[i] + 2.0f * b[i];
#pragma omp section
        for (int64_t i = n / 3; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    }
    return 0;
}
