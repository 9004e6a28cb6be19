// task: add
// expect: CORRECT
// tries: work taken from a counter behind a lock of OpenMP
#include "evoforge.h"
#include <omp.h>
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    omp_lock_t lock;
    omp_init_lock(&lock);
    int64_t next = 0;
#pragma omp parallel num_threads(call->threads)
    for (;;) {
        omp_set_lock(&lock);
        const int64_t from = next;
        next += 8192;
        omp_unset_lock(&lock);
        if (from >= n) break;
        for (int64_t i = from; i < (from + 8192 < n ? from + 8192 : n); i++) out[i] = a[i] + 2.0f * b[i];
    }
    omp_destroy_lock(&lock);
    return 0;
}
