// task: add
// expect: CORRECT
// tries: OpenMP tasks
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
#pragma omp parallel num_threads(call->threads)
#pragma omp single
    for (int64_t from = 0; from < n; from += 4096) {
#pragma omp task firstprivate(from)
        for (int64_t i = from; i < (from + 4096 < n ? from + 4096 : n); i++) out[i] = a[i] + 2.0f * b[i];
    }
    return 0;
}
