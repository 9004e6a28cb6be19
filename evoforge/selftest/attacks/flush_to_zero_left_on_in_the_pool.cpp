// task: add
// expect: VIOLATION
// tries: FTZ and DAZ for everything that follows in the threads of OpenMP's pool
#include "evoforge.h"
#include <xmmintrin.h>
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    const unsigned before = _mm_getcsr();
#pragma omp parallel num_threads(call->threads)
    {
        _mm_setcsr(_mm_getcsr() | 0x8040);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    }
    _mm_setcsr(before);
    return 0;
}
