// task: add
// expect: CORRECT
// tries: a megabyte of stack in every thread of the pool
#include "evoforge.h"
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    auto part = [&](int64_t from, int64_t to) __attribute__((noinline)) {
        volatile float deep[1 << 18];
        for (int64_t at = from; at < to; at += 1 << 18)
            for (int64_t i = at; i < to && i < at + (1 << 18); i++) deep[i - at] = 2.0f * b[i];
        for (int64_t i = from; i < to; i++) out[i] = a[i] + deep[i - from];
    };
#pragma omp parallel for num_threads(call->threads)
    for (int64_t at = 0; at < n; at += 1 << 14) part(at, at + (1 << 14) < n ? at + (1 << 14) : n);
    return 0;
}
